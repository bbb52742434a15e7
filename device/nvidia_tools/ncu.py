"""Hardware counters through Nsight Compute, where it is installed and may read them.

`ncu` runs a process of its own around the one that launches the kernel, and prints CSV. Its
metrics are renamed to the fields of `Counters`, so that what the hardware counted stands beside
what the emulator counted. Metric names: Nsight Compute's "Kernel Profiling Guide" and
`ncu --query-metrics`.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from memlab.device.gpu.timing import TIMEOUT_S
from memlab.device.nvidia_tools.launch_request import launch_command, run_tool
from memlab.errors import DeviceError
from memlab.kernels.launch import Launch

_GLOBAL_METRIC = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_WAVEFRONTS_METRIC = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_THREAD_INSTRUCTIONS_METRIC = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"

COUNTER_METRICS: Mapping[str, Mapping[str, int]] = {
    "global_load_requests": {_GLOBAL_METRIC.format("requests", "ld"): 1},
    "global_load_sectors": {_GLOBAL_METRIC.format("sectors", "ld"): 1},
    "global_store_requests": {_GLOBAL_METRIC.format("requests", "st"): 1},
    "global_store_sectors": {_GLOBAL_METRIC.format("sectors", "st"): 1},
    "global_atomic_requests": {_GLOBAL_METRIC.format("requests", "atom"): 1},
    "global_atomic_sectors": {_GLOBAL_METRIC.format("sectors", "atom"): 1},
    "global_reduction_requests": {_GLOBAL_METRIC.format("requests", "red"): 1},
    "global_reduction_sectors": {_GLOBAL_METRIC.format("sectors", "red"): 1},
    "shared_load_instructions": {"smsp__inst_executed_op_shared_ld.sum": 1},
    # Those attributed to instructions. The plain l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st
    # lay 5 to 16% above on tiled, and differed from run to run.
    "shared_load_wavefronts": {_WAVEFRONTS_METRIC.format("ld"): 1},
    "shared_store_instructions": {"smsp__inst_executed_op_shared_st.sum": 1},
    "shared_store_wavefronts": {_WAVEFRONTS_METRIC.format("st"): 1},
    # Not l1tex__data_bank_conflicts…, which reports conflicts where no wavefront is in excess.
    "shared_excessive_wavefronts": {
        "memory_l1_wavefronts_shared": 1,
        "memory_l1_wavefronts_shared_ideal": -1,
    },
    "local_load_sectors": {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 1},
    "local_store_sectors": {"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 1},
    "l1_read_sector_hits": {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum": 1},
    # Traffic that the L1 sends, not all of the L2's: that holds the copies between its halves.
    "l2_read_sectors": {"lts__t_sectors_srcunit_tex_op_read.sum": 1},
    "l2_read_sector_hits": {"lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum": 1},
    "l2_write_sectors": {"lts__t_sectors_srcunit_tex_op_write.sum": 1},
    "dram_read_bytes": {"dram__bytes_read.sum": 1},
    "dram_write_bytes": {"dram__bytes_write.sum": 1},
    "flop_fp32": {
        _THREAD_INSTRUCTIONS_METRIC.format("ffma"): 2,
        _THREAD_INSTRUCTIONS_METRIC.format("fadd"): 1,
        _THREAD_INSTRUCTIONS_METRIC.format("fmul"): 1,
    },
    "flop_fp64": {
        _THREAD_INSTRUCTIONS_METRIC.format("dfma"): 2,
        _THREAD_INSTRUCTIONS_METRIC.format("dadd"): 1,
        _THREAD_INSTRUCTIONS_METRIC.format("dmul"): 1,
    },
    "thread_instructions": {"smsp__thread_inst_executed.sum": 1},
    "warp_instructions": {"smsp__inst_executed.sum": 1},
}
"""How each of our counters is summed from Nsight Compute's metrics: metric name to weight."""

DURATION_METRIC = "gpu__time_duration.sum"
"""The kernel's time, seconds once `parse` has read it."""

STARTUP_S = 60.0
"""What starting Nsight Compute and the process it watches may take, until this launches."""
LONGEST_LAUNCHES_ALLOWED = 4
"""A launch is replayed a dozen times and more, once for each group of counters that fits. The time
of so many that take as long as one may is enough to replay any that took a quarter of it."""

_SECONDS_PER_UNIT = {"ns": 1e-9, "nsecond": 1e-9}
"""Factors to seconds: ncu's base unit of time, and what older releases call it. Its other base
units are ours."""

_INSTALL_PATTERNS = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
"""Where CUDA's and Nsight Compute's installers put it, under the root."""

INSTALL_ADVICE = (
    "install the CUDA toolkit's nsight-compute package, or add the folder of ncu to PATH"
)
PERMISSION_ADVICE = (
    "run memlab as root, or have an administrator load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
)

_FAILURE_REASONS = {
    "ERR_NVGPUCTRPERM": "the driver lets only administrators read hardware counters: "
    + PERMISSION_ADVICE,
    "LibraryNotLoaded": "Nsight Compute cannot reach the driver's profiling interface here, as "
    "in a sandboxed container: profile on the host",
}
"""What ncu's output says, and what that means."""


class ProfilerError(DeviceError):
    """Nsight Compute gives no counters here; everything else works without them."""


def find_ncu() -> Path | None:
    """Find Nsight Compute's command line: on the PATH, else where its installers put it."""
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path)
    installed = [place for each in _INSTALL_PATTERNS for place in sorted(Path("/").glob(each))]
    return installed[-1] if installed else None


def profiling_timeout_s(timeout_s: float) -> float:
    """How long counting a launch may take, seconds, that may run for `timeout_s` by itself."""
    return STARTUP_S + LONGEST_LAUNCHES_ALLOWED * timeout_s


def required_metrics() -> tuple[str, ...]:
    """Name the metrics that `COUNTERS` needs, and the kernel's time, each once."""
    needed = (metric for terms in COUNTER_METRICS.values() for metric in terms)
    return tuple(dict.fromkeys((DURATION_METRIC, *needed)))


def ncu_command(
    ncu: Path, metrics: Iterable[str], entry: str, target: Iterable[str | Path]
) -> list[str]:
    """Give the command that profiles the first launch of one kernel.

    The GPU's clocks are left as they are; the caches are flushed before each replay, which is
    ncu's own default and what the emulator's cache models assume.

    Args:
        ncu: The executable.
        metrics: What to collect.
        entry: The kernel function's name.
        target: The command that launches it.
    """
    return [
        *(str(ncu), "--csv", "--page", "raw", "--print-units", "base"),
        *("--metrics", ",".join(metrics)),
        *("--clock-control", "none", "--cache-control", "all"),
        *("--target-processes", "all"),
        *("--kernel-name-base", "mangled", "--kernel-name", entry, "--launch-count", "1"),
        *map(str, target),
    ]


def parse_metrics(text: str) -> dict[str, float]:
    """Read the first kernel of `ncu --csv --page raw`.

    The CSV is a row of names, a row of units and a row for each kernel; ncu's own messages and
    the program's output may stand before it.

    Args:
        text: All of ncu's output.

    Returns:
        The metrics by ncu's names, times in seconds, sizes in bytes, counts as they are. What
        is no number, or was not available, is left out.

    Raises:
        ProfilerError: There is no kernel in it; says why where the output does.
    """
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID",')), None)
    rows = [] if start is None else list(csv.reader(lines[start : start + 3]))
    if len(rows) < 3:
        raise ProfilerError(_explain_failure(text))
    metrics: dict[str, float] = {}
    for name, unit, value in zip(*rows, strict=True):
        try:
            metrics[name] = float(value.replace(",", "")) * _SECONDS_PER_UNIT.get(unit, 1)
        except ValueError:
            continue
    return metrics


def counters_from_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Rename what ncu counted to the fields of `Counters`; what it did not count is left out.

    Args:
        metrics: As `parse` gives them.

    Returns:
        Whole numbers by our names, and the kernel's time as `duration_s`, seconds.
    """
    counted: dict[str, float] = {
        name: round(sum(weight * metrics[metric] for metric, weight in terms.items()))
        for name, terms in COUNTER_METRICS.items()
        if all(metric in metrics for metric in terms)
    }
    if DURATION_METRIC in metrics:
        counted["duration_s"] = metrics[DURATION_METRIC]
    return counted


def profile(
    launch: Launch,
    *,
    index: int = 0,
    seed: int = 0,
    more: Iterable[str] = (),
    timeout_s: float | None = None,
) -> dict[str, float]:
    """Run a launch once under Nsight Compute.

    Args:
        launch: What to run.
        index: Which GPU, as CUDA counts them.
        seed: Of the random inputs.
        more: Metrics to collect besides those of `COUNTERS`.
        timeout_s: How long the launch may run by itself, seconds; `limit_s` says what counting it
            may take then. None allows the usual.

    Returns:
        The metrics as `parse` gives them; `counters` renames them.

    Raises:
        ProfilerError: Nsight Compute is not installed, may not read counters, or failed; the
            message says which and what to do.
    """
    ncu = find_ncu()
    if ncu is None:
        raise ProfilerError(
            f"Nsight Compute (ncu) is not installed, or not on the PATH: {INSTALL_ADVICE}"
        )
    metrics = dict.fromkeys((*required_metrics(), *more))
    most_s = profiling_timeout_s(TIMEOUT_S if timeout_s is None else timeout_s)
    try:
        with launch_command(launch, index, seed) as words:
            output = run_tool(ncu_command(ncu, metrics, launch.entry, words), most_s)
    except subprocess.TimeoutExpired:
        raise ProfilerError(
            f"Nsight Compute did not finish {launch.kernel} within {most_s:g} s, in which it "
            "replays the launch a dozen times and more: use smaller sizes, or allow more with "
            "--timeout SECONDS"
        ) from None
    except OSError as error:
        raise ProfilerError(f"{ncu} does not start ({error}): reinstall Nsight Compute") from error
    return parse_metrics(output)


def _explain_failure(output: str) -> str:
    """Say in one line why ncu printed no counters."""
    for mark, reason in _FAILURE_REASONS.items():
        if mark in output:
            return reason
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("==")]
    failed = "==ERROR== The application returned an error code"
    causes = [
        *(line for line in lines if line.startswith("==ERROR==") and not line.startswith(failed)),
        *(own[-1:] if failed in output else ()),  # what the program said before it failed
        *(line for line in reversed(lines) if line.startswith("==WARNING==")),
        "it printed nothing",
    ]
    cause = causes[0].partition("== ")[2] or causes[0].removeprefix("memlab: error: ")
    return f"Nsight Compute gave no counters ({cause}): see 'memlab doctor'"
