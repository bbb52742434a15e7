"""Times of the same launches from NVBench and Nsight Compute, each in a separate process.

NVBench is the package `cuda-bench` on PyPI. Both run the same machine code as memlab, on the same
inputs.
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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_cases import Case, cases
from memlab.device.gpu.device import CudaDevice, prepare_on_gpu
from memlab.device.gpu.session import GpuSession
from memlab.device.inputs import make_inputs
from memlab.kernels.launch import Buffer, Scalar

NCU_LAUNCHES = 12


def nvbench_times(names: list[str]) -> dict[str, dict[str, float]]:
    """Time the cases with NVBench.

    Returns:
        For each case, values by NVBench's tags: median, quartiles over the median, SM clock.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "nvbench.json")
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu_tools", "--nvbench", str(file)],
            check=False,
            capture_output=True,
            text=True,
        )
        if not file.exists():
            print("NVBench:", *done.stderr.splitlines()[-1:], file=sys.stderr)
            return {}
        document = json.loads(file.read_text())
    times: dict[str, dict[str, float]] = {}
    for name, benchmark in zip(names, document["benchmarks"], strict=True):
        (state,) = benchmark["states"]
        times[name] = {
            summary["tag"]: float(summary["data"][0]["value"])
            for summary in state["summaries"] or ()
            if summary["data"] and summary["data"][0]["type"] == "float64"
        }
    return times


def run_nvbench(file: str) -> None:
    """The main function of the process in which NVBench runs."""
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
            for argument in launch.arguments:
                if isinstance(argument, Buffer):
                    size = int(np.prod(argument.shape)) * np.dtype(argument.dtype).itemsize
                    memory.append(checked(driver.cuMemAlloc(size)))
                    if argument.role == "in":
                        checked(
                            driver.cuMemcpyHtoD(memory[-1], inputs[argument.name].ctypes.data, size)
                        )
                    values.append(np.array([int(memory[-1])], np.uint64))
                else:
                    assert isinstance(argument, Scalar)
                    values.append(np.array([argument.value], argument.dtype))
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
    """Time the cases with Nsight Compute: the median of several launches, seconds, by case."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not Path(ncu).exists():
        return {}
    entries = "|".join(sorted({case.launch.entry for case in all_cases}))
    kernel_filter = f"regex:^({entries})$"
    done = subprocess.run(
        [ncu, "--clock-control", "none", "--cache-control", "all", "--csv", "--page", "raw",
         "--print-units", "base", "--metrics", "gpu__time_duration.sum", "-k", kernel_filter,
         sys.executable, "-m", "benchmarks.gpu_tools", "--launch"],
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
    """The main function of the process that Nsight Compute observes."""
    with GpuSession(0) as session:
        for case in cases(CudaDevice(0).properties):
            ready = prepare_on_gpu(session, case.launch, case.compiled, 0)
            for _ in range(NCU_LAUNCHES):
                ready.run_once()
                session.synchronize(case.name)


if __name__ == "__main__":
    if sys.argv[1] == "--nvbench":
        run_nvbench(sys.argv[2])
    else:
        launch_all()
