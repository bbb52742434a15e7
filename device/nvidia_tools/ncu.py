"""Hardware counters through Nsight Compute, if it is installed and may read them.

`ncu` starts the process that launches the kernel, and prints CSV. Its metrics are renamed to the
fields of `Counters`, to compare them with the emulator's counters. Metric names: Nsight Compute's
"Kernel Profiling Guide" and `ncu --query-metrics`.
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
from memlab.kernels.launch import NO_CLUSTER, Launch

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
    # The metrics of instructions: l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st was 5 to 16%
    # higher on tiled and differed from run to run.
    "shared_load_wavefronts": {_WAVEFRONTS_METRIC.format("ld"): 1},
    "shared_store_instructions": {"smsp__inst_executed_op_shared_st.sum": 1},
    "shared_store_wavefronts": {_WAVEFRONTS_METRIC.format("st"): 1},
    # Not l1tex__data_bank_conflicts…, which reports conflicts without excessive wavefronts.
    "shared_excessive_wavefronts": {
        "memory_l1_wavefronts_shared": 1,
        "memory_l1_wavefronts_shared_ideal": -1,
    },
    "distributed_shared_requests": {"l1tex__t_requests_pipe_lsu_mem_dshared.sum": 1},
    "distributed_shared_sectors": {"l1tex__t_sectors_pipe_lsu_mem_dshared.sum": 1},
    "local_load_sectors": {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 1},
    "local_store_sectors": {"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 1},
    "l1_read_sector_hits": {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum": 1},
    # Only traffic from the L1: all traffic of the L2 includes the copies between its halves.
    "lrc_read_sectors": {
        "l1tex__m_xbar2l1tex_read_sectors.sum": 1,
        _GLOBAL_METRIC.format("sectors", "atom"): -1,  # their results come back the same way
    },
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
"""For each counter of memlab, the weights of Nsight Compute's metrics in its sum."""

_SWAPS_METRIC = "smsp__inst_executed_op_shared_atom_dot_cas.sum"
_WITH_SWAPS: Mapping[str, Mapping[str, int]] = {
    "shared_load_wavefronts": {"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 1},
}
"""The metrics of launches that compare and swap in shared memory.

How often a loop of compare-and-swaps tries again depends on its timing. The metrics of instructions
come from code that Nsight Compute has instrumented: under them an addition to a float took an H100
19 times as long, and 64 warps tried a quarter as often (docs/results/h100-shared-additions.csv).
That of the L1 counts up to 1% more there, for its arbitration."""

_OF_CLUSTERS = ("distributed_shared_requests", "distributed_shared_sectors")
"""Counters that are 0 without clusters. GPUs that have none do not know their metrics, and ncu
fails on a metric that it does not find."""

DURATION_METRIC = "gpu__time_duration.sum"
"""The kernel's time; `parse_metrics` converts it to seconds."""

STARTUP_S = 60.0
"""The limit for starting Nsight Compute and the observed process, until its launch, seconds."""
LONGEST_LAUNCHES_ALLOWED = 4
"""The limit of profiling, as a multiple of the limit of one launch. A launch is replayed a dozen
times or more, once per group of counters, so this suffices for launches that take up to about a
quarter of their limit."""

_SECONDS_PER_UNIT = {"ns": 1e-9, "nsecond": 1e-9}
"""Factors to seconds of ncu's base unit of time, in current and older releases; its other base
units are memlab's too."""

_INSTALL_PATTERNS = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
"""Paths of the installers of CUDA and Nsight Compute, relative to the root."""

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
    "LibraryNotLoaded": "Nsight Compute cannot use the driver's profiling interface, for example "
    "in a sandboxed container: profile on the host",
}
"""The meaning of errors, by a part of ncu's output."""


class ProfilerError(DeviceError):
    """Nsight Compute gives no counters; the rest of memlab works without them."""


def find_ncu() -> Path | None:
    """Find Nsight Compute's command-line program: on the PATH, or else where it is installed."""
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path)
    installed = [path for pattern in _INSTALL_PATTERNS for path in sorted(Path("/").glob(pattern))]
    return installed[-1] if installed else None


def profiling_timeout_s(timeout_s: float) -> float:
    """The limit for profiling a launch that may take `timeout_s` without a profiler, seconds."""
    return STARTUP_S + LONGEST_LAUNCHES_ALLOWED * timeout_s


def required_metrics(clusters: bool = False) -> tuple[str, ...]:
    """The metrics that the counters need, and the kernel's time, without duplicates.

    Args:
        clusters: Whether the launch has thread block clusters.
    """
    counters = (name for name in COUNTER_METRICS if clusters or name not in _OF_CLUSTERS)
    needed = (metric for name in counters for metric in COUNTER_METRICS[name])
    with_swaps = (metric for terms in _WITH_SWAPS.values() for metric in terms)
    return tuple(dict.fromkeys((DURATION_METRIC, *needed, _SWAPS_METRIC, *with_swaps)))


def ncu_command(
    ncu: Path, metrics: Iterable[str], entry: str, target: Iterable[str | Path]
) -> list[str]:
    """The command that profiles the first launch of one kernel.

    The GPU's clocks are not changed; the caches are flushed before each replay, which is ncu's
    default and the assumption of the emulator's cache models.

    Args:
        ncu: The executable.
        metrics: The metrics to collect.
        entry: The kernel's name in the compiled code.
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
    """Read the first kernel of the output of `ncu --csv --page raw`.

    The CSV is a row of names, a row of units and one row per kernel; ncu's messages and the
    program's output may precede it.

    Args:
        text: The whole output of ncu.

    Returns:
        Values by ncu's metric names: times in seconds, sizes in bytes, and counts. Metrics that
        are unavailable or not numbers are left out.

    Raises:
        ProfilerError: The output contains no kernel; the message gives the reason if the output
            does.
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
    """Convert ncu's metrics to the fields of `Counters`; those without metrics are left out.

    Args:
        metrics: A result of `parse_metrics`.

    Returns:
        Whole numbers by the names of `Counters`, and the kernel's time as `duration_s`, seconds.
    """
    sources = (COUNTER_METRICS, _WITH_SWAPS) if metrics.get(_SWAPS_METRIC) else (COUNTER_METRICS,)
    counted: dict[str, float] = {
        name: round(sum(weight * metrics[metric] for metric, weight in terms.items()))
        for terms_by_name in sources
        for name, terms in terms_by_name.items()
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
        launch: The launch.
        index: The GPU's number, from 0, as CUDA counts.
        seed: Seed of the random inputs.
        more: Metrics to collect besides those of `COUNTER_METRICS`.
        timeout_s: The limit of the launch without a profiler, seconds, from which
            `profiling_timeout_s` computes the limit of profiling; None for the default.

    Returns:
        The metrics, as from `parse_metrics`; `counters_from_metrics` renames them.

    Raises:
        ProfilerError: Nsight Compute is not installed, may not read counters, or failed; the
            message says which, and what to do.
    """
    ncu = find_ncu()
    if ncu is None:
        raise ProfilerError(
            f"Nsight Compute (ncu) is not installed, or not on the PATH: {INSTALL_ADVICE}"
        )
    metrics = dict.fromkeys((*required_metrics(launch.cluster != NO_CLUSTER), *more))
    most_s = profiling_timeout_s(TIMEOUT_S if timeout_s is None else timeout_s)
    try:
        with launch_command(launch, index, seed) as words:
            output = run_tool(ncu_command(ncu, metrics, launch.entry, words), most_s)
    except subprocess.TimeoutExpired:
        raise ProfilerError(
            f"Nsight Compute did not finish {launch.kernel} within {most_s:g} s, in which it "
            "replays the launch a dozen times or more: use smaller sizes, or allow more time with "
            "--timeout SECONDS"
        ) from None
    except OSError as error:
        raise ProfilerError(f"{ncu} does not start ({error}): reinstall Nsight Compute") from error
    return parse_metrics(output)


def _explain_failure(output: str) -> str:
    """Explain in one line why ncu printed no counters."""
    for mark, reason in _FAILURE_REASONS.items():
        if mark in output:
            return reason
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    program_lines = [line for line in lines if not line.startswith("==")]
    failed = "==ERROR== The application returned an error code"
    causes = [
        *(line for line in lines if line.startswith("==ERROR==") and not line.startswith(failed)),
        *(program_lines[-1:] if failed in output else ()),  # the last message before the failure
        *(line for line in reversed(lines) if line.startswith("==WARNING==")),
        "it printed nothing",
    ]
    cause = causes[0].partition("== ")[2] or causes[0].removeprefix("memlab: error: ")
    return f"Nsight Compute gave no counters ({cause}): see 'memlab doctor'"
