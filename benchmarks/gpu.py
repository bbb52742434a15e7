"""memlab's times on this GPU beside NVBench's and Nsight Compute's, for the same kernels.

    python -m benchmarks.gpu [FOLDER]

Prints a table and, with a folder, writes `timing.csv` and `timing.md` there. NVBench (`pip
install cuda-bench`) and `ncu` are used where they are installed. All run the same machine code on
the same random inputs, each in a process of its own.

The three do not time quite the same thing, which shows on short kernels. NVBench: CUDA events
around the launch, behind a blocking kernel; it flushes the L2 by writing as much as it holds, some
of which is written back while the kernel runs. memlab: likewise, but it flushes by reading last.
Nsight Compute: from the kernel's start to its end on the GPU, without the 1.3 us that two events
take by themselves on an H200, L1 and L2 invalidated before.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu_cases import Case, cases
from memlab.device.cuda_device import CudaDevice, measure, prepare
from memlab.device.cuda_session import Session
from memlab.device.inputs import make_inputs
from memlab.device.timing import Settings
from memlab.kernels.launch import Buffer, Scalar

if TYPE_CHECKING:
    from memlab.device.measurement import Time, Verification
    from memlab.device.properties import DeviceProperties

NCU_LAUNCHES = 12


def memlab_times(case: Case) -> tuple[Time, Verification]:
    """Time a case as `memlab run` does."""
    time, verification, _ = measure(
        0, case.launch, case.compiled.cubin, 0, Settings(), None, meanwhile=lambda: None
    )
    return time, verification


def nvbench_times(names: list[str]) -> dict[str, dict[str, float]]:
    """Time the cases with NVBench: median, quartiles over the median, SM clock; by case."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "nvbench.json")
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu", "--nvbench", str(file)],
            check=False,
            capture_output=True,
            text=True,
        )
        if not file.exists():
            print("NVBench:", *done.stderr.splitlines()[-1:], file=sys.stderr)
            return {}
        document = json.loads(file.read_text())
    found: dict[str, dict[str, float]] = {}
    for name, benchmark in zip(names, document["benchmarks"], strict=True):
        (state,) = benchmark["states"]
        found[name] = {
            summary["tag"]: float(summary["data"][0]["value"])
            for summary in state["summaries"] or ()
            if summary["data"] and summary["data"][0]["type"] == "float64"
        }
    return found


def run_nvbench(file: str) -> None:
    """Be the process that NVBench runs in."""
    from cuda import bench
    from cuda.bindings import driver

    def checked(answer: tuple[Any, ...]) -> Any:
        assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
        return answer[1] if len(answer) == 2 else answer[1:]

    def register(case: Case) -> None:
        def run(state: bench.State) -> None:
            launch = case.launch
            inputs = make_inputs(launch, 0)
            function = checked(
                driver.cuModuleGetFunction(
                    checked(driver.cuModuleLoadData(case.compiled.cubin)), launch.entry.encode()
                )
            )
            values, memory = [], []
            for each in launch.arguments:
                if isinstance(each, Buffer):
                    size = int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize
                    memory.append(checked(driver.cuMemAlloc(size)))
                    if each.role == "in":
                        checked(
                            driver.cuMemcpyHtoD(memory[-1], inputs[each.name].ctypes.data, size)
                        )
                    values.append(np.array([int(memory[-1])], np.uint64))
                else:
                    assert isinstance(each, Scalar)
                    values.append(np.array([each.value], each.dtype))
            pointers = np.array([value.ctypes.data for value in values], np.uint64)

            def once(nvbench_launch: bench.Launch) -> None:
                checked(
                    driver.cuLaunchKernel(
                        function,
                        *launch.grid,
                        *launch.block,
                        launch.dynamic_shared_bytes,
                        nvbench_launch.get_stream().addressof(),
                        pointers.ctypes.data,
                        0,
                    )
                )

            state.exec(once, batched=False)
            for address in memory:
                checked(driver.cuMemFree(address))

        bench.register(run).set_name(case.name.replace(" ", "_").replace(",", ""))

    for case in cases(CudaDevice(0).properties):
        register(case)
    bench.run_all_benchmarks(["nvbench", "--devices", "0", "--json", file])


def ncu_times(all_cases: list[Case]) -> dict[str, float]:
    """Time the cases with Nsight Compute: the median of some launches, seconds, by case."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not Path(ncu).exists():
        return {}
    entries = "|".join(sorted({case.launch.entry for case in all_cases}))
    only = f"regex:^({entries})$"
    done = subprocess.run(
        [ncu, "--clock-control", "none", "--cache-control", "all", "--csv", "--page", "raw",
         "--print-units", "base", "--metrics", "gpu__time_duration.sum", "-k", only,
         sys.executable, "-m", "benchmarks.gpu", "--launch"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    start = done.stdout.find('"ID"')
    if start < 0:
        print("ncu:", *(done.stdout + done.stderr).splitlines()[-3:], file=sys.stderr)
        return {}
    rows = list(csv.DictReader(io.StringIO(done.stdout[start:])))[1:]  # the first holds units
    durations = [float(row["gpu__time_duration.sum"].replace(",", "")) * 1e-9 for row in rows]
    return {
        case.name: statistics.median(durations[index * NCU_LAUNCHES : (index + 1) * NCU_LAUNCHES])
        for index, case in enumerate(all_cases)
    }


def launch_all() -> None:
    """Be the process that Nsight Compute watches."""
    with Session(0) as session:
        for case in cases(CudaDevice(0).properties):
            ready = prepare(session, case.launch, case.compiled.cubin, 0)
            for _ in range(NCU_LAUNCHES):
                ready.once()
                session.synchronize(case.name)


def compare() -> tuple[list[dict[str, str]], DeviceProperties]:
    """Time every case with all three, memlab twice.

    Returns:
        A row a case, times in microseconds and differences in percent, and the device.
    """
    properties = CudaDevice(0).properties
    chosen = cases(properties)
    first = [memlab_times(case) for case in chosen]
    nvbench, ncu = nvbench_times([case.name for case in chosen]), ncu_times(chosen)
    again = [memlab_times(case) for case in chosen]
    return [
        _row(case, first[index], again[index], nvbench.get(case.name, {}), ncu.get(case.name))
        for index, case in enumerate(chosen)
    ], properties


def _row(
    case: Case,
    first: tuple[Time, Verification],
    again: tuple[Time, Verification],
    nvbench: Mapping[str, float],
    ncu_s: float | None,
) -> dict[str, str]:
    time, verification = first
    nvbench_s = nvbench.get("nv/cold/time/gpu/median", nvbench.get("nv/cold/time/gpu/mean"))
    spread = (time.upper_quartile_s or 0) - (time.lower_quartile_s or 0)
    warm_spread = (time.warm_upper_quartile_s or 0) - (time.warm_lower_quartile_s or 0)
    nvbench_spread = nvbench.get("nv/cold/time/gpu/iqr/relative")
    clock = nvbench.get("nv/cold/sm_clock_rate/mean")
    return {
        "kernel": case.name,
        "verified": verification.status,
        "memlab_us": f"{time.median_s * 1e6:.2f}",
        "samples": str(time.samples),
        "iqr_%": f"{100 * spread / time.median_s:.2f}",
        "again_%": _difference(again[0].median_s, time.median_s),
        "events_us": f"{(time.event_pair_s or 0) * 1e6:.2f}",
        "warm_us": f"{(time.warm_median_s or 0) * 1e6:.2f}",
        "warm_iqr_%": f"{100 * warm_spread / (time.warm_median_s or 1):.2f}",
        "clock_MHz": "" if time.clock_hz is None else f"{time.clock_hz / 1e6:.0f}",
        "drift_%": "" if time.clock_drift is None else f"{100 * time.clock_drift:.1f}",
        "nvbench_us": "" if nvbench_s is None else f"{nvbench_s * 1e6:.2f}",
        "nvbench_iqr_%": "" if nvbench_spread is None else f"{100 * nvbench_spread:.2f}",
        "to_nvbench_%": _difference(time.median_s, nvbench_s),
        "nvbench_MHz": "" if clock is None else f"{clock / 1e6:.0f}",
        "ncu_us": "" if ncu_s is None else f"{ncu_s * 1e6:.2f}",
        "to_ncu_%": _difference(time.median_s, ncu_s),
    }


def _difference(value: float, base: float | None) -> str:
    return "" if not base else f"{100 * (value / base - 1):+.2f}"


def _markdown(rows: list[dict[str, str]]) -> str:
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    lines += ["| " + " | ".join(row.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Compare, print, and write where a folder is given."""
    if arguments[:1] == ["--nvbench"]:
        return run_nvbench(arguments[1])
    if arguments[:1] == ["--launch"]:
        return launch_all()
    rows, properties = compare()
    smi = shutil.which("nvidia-smi")
    driver = "" if smi is None else subprocess.run(
        [smi, "--query-gpu=driver_version", "--format=csv,noheader"],
        check=False, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    head = (
        f"{properties.name}, driver {driver}, CUDA {properties.driver_version}, "
        f"{datetime.now(UTC):%Y-%m-%d}, clocks as found"
    )
    text = f"{head}\n\n{_markdown(rows)}"
    print(text)
    if arguments:
        folder = Path(arguments[0])
        folder.mkdir(parents=True, exist_ok=True)
        Path(folder, "timing.md").write_text(text)
        with Path(folder, "timing.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
