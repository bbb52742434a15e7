"""The command of Nsight Compute and its output, tested without Nsight Compute.

`ncu-tiled-64.txt` is what ncu 2025.3.1 printed on an H200 for `tiled`, width 64, tile 16, less the
columns of device and launch attributes.
"""

import json
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from paths import DATA

from memlab.device.nvidia_tools import ncu
from memlab.device.nvidia_tools.ncu import ProfilerError
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch

RECORDED = DATA / "ncu-tiled-64.txt"

CONNECTED = "==PROF== Connected to process 1319 (/usr/bin/python3.12)\n"
APPLICATION_FAILED = "==ERROR== The application returned an error code (1).\n"


@pytest.fixture
def launch() -> Launch:
    return find_kernel("tiled").prepare({"width": 64, "tile": 16}, Limits("NVIDIA H200"))


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Put a program called `ncu` on the PATH."""

    def write(script: str) -> None:
        program = tmp_path / "ncu"
        program.write_text(f"#!{sys.executable}\n{script}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return write


def test_the_counters_of_a_real_gpu() -> None:
    """Counted by hand: 4 x 4 blocks of 8 warps load 2 elements in each of 4 phases."""
    counted = ncu.counters_from_metrics(ncu.parse_metrics(RECORDED.read_text()))

    warps = 16 * 8
    assert counted["global_load_requests"] == warps * 2 * 4
    assert counted["global_load_sectors"] == warps * 2 * 4 * 4  # two rows of 64 bytes
    assert counted["global_store_requests"] == warps
    assert counted["global_store_sectors"] == warps * 4
    assert counted["shared_store_instructions"] == warps * 2 * 4
    assert counted["shared_store_wavefronts"] == warps * 2 * 4
    assert counted["shared_excessive_wavefronts"] == 0
    assert counted["flop_fp32"] == 2 * 64**3
    assert counted["flop_fp64"] == 0
    assert counted["thread_instructions"] == 32 * counted["warp_instructions"]
    assert 2 * 64 * 64 * 4 <= counted["dram_read_bytes"] < 2 * 2 * 64 * 64 * 4
    assert 2e-6 < counted["duration_s"] < 8e-6
    asked_since = {
        name
        for name in ncu.COUNTER_METRICS
        if any(part in name for part in ("_atomic_", "_reduction_", "distributed_"))
        or name == "lrc_read_sectors"
    }
    assert set(counted) == set(ncu.COUNTER_METRICS) - asked_since | {"duration_s"}


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("ns", "4,320", 4.32e-6),
        ("nsecond", "4320", 4.32e-6),
        ("sector", "1,342,177,280", 1342177280),
    ],
)
def test_figures_are_read_in_base_units(unit: str, value: str, expected: float) -> None:
    text = f'"ID","Kernel Name","a.sum"\n"","","{unit}"\n"0","tiled","{value}"\n'

    assert ncu.parse_metrics(text)["a.sum"] == pytest.approx(expected)


def test_only_a_launch_with_clusters_asks_for_their_metrics() -> None:
    """GPUs without clusters do not know these metrics, and Nsight Compute then fails."""
    asked = set(ncu.required_metrics(clusters=True)) - set(ncu.required_metrics())
    assert asked == {
        "l1tex__t_requests_pipe_lsu_mem_dshared.sum",
        "l1tex__t_sectors_pipe_lsu_mem_dshared.sum",
    }
    counted = ncu.counters_from_metrics(dict.fromkeys(asked, 8.0))
    assert counted == {"distributed_shared_requests": 8, "distributed_shared_sectors": 8}


def test_what_was_not_counted_is_left_out() -> None:
    text = '"ID","dram__bytes_read.sum","dram__bytes_write.sum"\n"","byte","byte"\n"0","32","n/a"\n'

    assert ncu.counters_from_metrics(ncu.parse_metrics(text)) == {"dram_read_bytes": 32}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            # From NVIDIA's documentation: https://developer.nvidia.com/ERR_NVGPUCTRPERM
            CONNECTED + "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
            "NVIDIA GPU Performance Counters on the target device 0. For instructions on enabling "
            "permissions and to get more information see "
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n",
            "run memlab as root, or have an administrator load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (
            "memlab: error: a GPU needs PyCUDA: pip install\n" + CONNECTED + APPLICATION_FAILED,
            "no counters (a GPU needs PyCUDA: pip install)",
        ),
        ("hello\n==WARNING== No kernels were profiled.\n", "(No kernels were profiled.)"),
        (
            CONNECTED + '==ERROR== Failed to find metric x\n\n==ERROR== Failed to profile "t"\n'
            "==ERROR== The application returned an error code (9).\n",
            "(Failed to find metric x)",
        ),
        ("", "(it printed nothing)"),
    ],
)
def test_why_there_are_no_counters_is_one_line(output: str, message: str) -> None:
    with pytest.raises(ProfilerError) as caught:
        ncu.parse_metrics(output)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_launch_goes_through_ncu(install, launch, tmp_path) -> None:
    install(
        "import json, os, pathlib, sys\n"
        f"pathlib.Path({str(tmp_path / 'words')!r}).write_text(json.dumps(sys.argv[1:]))\n"
        f"pathlib.Path({str(tmp_path / 'seen')!r}).write_bytes(\n"
        "    pathlib.Path(sys.argv[-1]).read_bytes())\n"
        f"print(pathlib.Path({str(RECORDED)!r}).read_text())\n"
    )

    metrics = ncu.profile(launch, index=1, seed=7, more=["sm__cycles_elapsed.max"])

    assert metrics["smsp__inst_executed.sum"] == 36736
    words = json.loads((tmp_path / "words").read_text())
    assert words[words.index("--clock-control") + 1] == "none"  # never change a GPU's clocks
    assert words[words.index("--kernel-name") + 1] == "tiled"
    collected = words[words.index("--metrics") + 1].split(",")
    assert {ncu.DURATION_METRIC, "dram__bytes_read.sum", "sm__cycles_elapsed.max"} <= set(collected)
    assert len(set(collected)) == len(collected)
    seen = pickle.loads((tmp_path / "seen").read_bytes())
    assert (seen.index, seen.seed) == (1, 7)
    assert seen.launch == replace(launch, references={})
    assert not Path(words[-1]).exists()  # nothing is left behind


@pytest.mark.parametrize(("timeout_s", "limit_s"), [(60, 300), (2, 68), (600, 2460)])
def test_counting_may_take_what_starting_it_and_four_launches_may(timeout_s, limit_s) -> None:
    assert ncu.profiling_timeout_s(timeout_s) == limit_s


def test_a_launch_that_never_ends_is_given_up_and_leaves_no_process(
    install, launch, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(ncu, "STARTUP_S", 0.6)
    alive, target = tmp_path / "alive", tmp_path / "target.py"
    target.write_text(f"import pathlib\nwhile True: pathlib.Path({str(alive)!r}).touch()\n")
    install(f"import subprocess, sys\nsubprocess.run([sys.executable, {str(target)!r}])\n")

    with pytest.raises(ProfilerError, match=r"did not finish tiled within 1 s"):
        ncu.profile(launch, timeout_s=0.1)

    alive.unlink()
    time.sleep(0.3)
    assert not alive.exists()


def test_the_newest_installed_ncu_is_found_unless_one_is_on_the_path(monkeypatch, tmp_path) -> None:
    pattern = f"{tmp_path.relative_to('/')}/*/ncu"
    monkeypatch.setattr(ncu, "_INSTALL_PATTERNS", (pattern,))
    monkeypatch.setattr(ncu.shutil, "which", lambda name: None)
    assert ncu.find_ncu() is None
    for release in ("2024.3.1", "2025.2.0"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "ncu").touch()
    assert ncu.find_ncu() == tmp_path / "2025.2.0" / "ncu"
    monkeypatch.setattr(ncu.shutil, "which", lambda name: f"/bin/{name}")
    assert ncu.find_ncu() == Path("/bin/ncu")


def test_without_ncu_the_message_says_how_to_get_it(launch, monkeypatch) -> None:
    monkeypatch.setattr(ncu, "find_ncu", lambda: None)

    with pytest.raises(ProfilerError, match="nsight-compute"):
        ncu.profile(launch)


def test_retried_swaps_are_counted_by_the_l1() -> None:
    """Code that Nsight Compute has instrumented tries again at other times."""
    instrumented = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
    of_l1 = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
    swaps = "smsp__inst_executed_op_shared_atom_dot_cas.sum"
    metrics = {instrumented: 7.0, of_l1: 9.0}

    assert {swaps, of_l1} <= set(ncu.required_metrics())
    assert ncu.counters_from_metrics(metrics | {swaps: 3.0})["shared_load_wavefronts"] == 9
    assert ncu.counters_from_metrics(metrics | {swaps: 0.0})["shared_load_wavefronts"] == 7
    assert ncu.counters_from_metrics({instrumented: 7.0, swaps: 3.0})["shared_load_wavefronts"] == 7
