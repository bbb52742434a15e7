"""Rates of this GPU that the time model needs and no datasheet gives.

    python -m benchmarks.rates [FOLDER]

Measures the start of blocks, the shortest kernel, and stores into the L2, by CUDA events after a
blocking kernel, less the time of two events with nothing between them; and the steps in which the
time between two events grows with the duration of a kernel between them. With a folder, also
writes `…-rates.txt` to it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.gpu_cases import SOURCE as TIMED
from benchmarks.gpu_results import head, prefix
from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import TimingSettings
from memlab.device.properties import SECTOR_BYTES, DeviceProperties, clock_hz

SOURCE = """
extern "C" __global__ void nothing() {}

extern "C" __global__ void fill(float4* to, int count, int times) {
  for (int time = 0; time < times; ++time)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
      to[i] = make_float4(time, i, time, i);
}

extern "C" __global__ void touch(float* to, int count, int times) {
  for (int time = 0; time < times; ++time)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
      to[8 * i] = time;
}
"""
GRIDS = (1, 132, 16_384, 65_536, 262_144)
THREADS = 256
STORED_BYTES = 16 * 2**20
"""Fits the L2, half of which is nearer to some multiprocessors than to others."""
FEW, MANY = 4, 12
"""Passes over these bytes; the difference of two launches contains no start and no end."""
BLOCKS_PER_SM, FILLING = 4, 512
SETTINGS = TimingSettings(samples=100)
WAITS_CLOCKS = range(36_000, 37_300, 20)
BRIEF = TimingSettings(samples=50, settle_s=0.0)
TICK_S = 32e-9
"""The resolution of times between events, seconds."""


def rates(properties: DeviceProperties) -> Iterator[str]:
    """Measure the rates; yield a line for each."""
    hertz, multiprocessors = clock_hz(properties) or 1.0, properties.multiprocessor_count or 1
    cubin = compile_unit(TranslationUnit(SOURCE, "rates.cu", properties.compute_capability)).cubin
    with GpuSession(0) as session:
        kernels = {name: session.load(cubin, name) for name in ("nothing", "fill", "touch")}

        def median_s(launch: Callable[[], None]) -> float:
            return session.time(launch, SETTINGS, flush=False).median_s

        events_s = median_s(lambda: None)
        yield f"two events with nothing between them: {events_s * 1e6:.2f} us"
        empty_s = {
            blocks: median_s(
                lambda blocks=blocks: session.launch(  # type: ignore[misc]
                    kernels["nothing"], (blocks, 1, 1), (THREADS, 1, 1), []
                )
            )
            - events_s
            for blocks in GRIDS
        }
        for blocks, seconds in empty_s.items():
            yield f"{blocks:,} x {THREADS} threads that do nothing: {seconds * 1e6:.2f} us"
        block_s = (empty_s[GRIDS[-1]] - empty_s[GRIDS[-2]]) / (GRIDS[-1] - GRIDS[-2])
        yield f"one block: {block_s * 1e9:.3f} ns, {1 / block_s / hertz:.3f} per clock"

        unit = TranslationUnit(TIMED.read_text(), TIMED.name, properties.compute_capability)
        timed = compile_unit(unit).cubin
        wait, marks = session.load(timed, "wait"), session.array(4 * multiprocessors)
        ends = Counter(
            round(
                session.time(
                    lambda clocks=clocks: session.launch(  # type: ignore[misc]
                        wait, (multiprocessors, 1, 1), (32, 1, 1), [marks, np.int64(clocks)]
                    ),
                    BRIEF,
                    flush=False,
                ).median_s
                / TICK_S
            )
            for clocks in WAITS_CLOCKS
        )
        first, last = (1e6 * clocks / hertz for clocks in (WAITS_CLOCKS[0], WAITS_CLOCKS[-1]))
        yield (
            f"events around {len(WAITS_CLOCKS)} waits of {first:.2f} to {last:.2f} us: "
            + ", ".join(f"{t * TICK_S * 1e6:.2f} us ({n})" for t, n in sorted(ends.items()))
        )

        memory = session.array(np.zeros(STORED_BYTES, np.uint8))
        for name, stride_bytes in (("fill", 16), ("touch", SECTOR_BYTES)):
            few_s, many_s = (
                median_s(
                    lambda name=name, stride=stride_bytes, times=times: session.launch(  # type: ignore[misc]
                        kernels[name],
                        (BLOCKS_PER_SM * multiprocessors, 1, 1),
                        (FILLING, 1, 1),
                        [memory, np.int32(STORED_BYTES // stride), np.int32(times)],
                    )
                )
                for times in (FEW, MANY)
            )
            rate = STORED_BYTES / SECTOR_BYTES * (MANY - FEW) / (many_s - few_s)
            yield (
                f"{name}: {rate / 1e9:.1f} G sectors/s into the L2, "
                f"{SECTOR_BYTES * rate / hertz:.0f} bytes of sectors per clock"
            )


def main(folder: Path | None) -> None:
    """Measure, print the results, and write them to the folder if there is one."""
    properties = gpu_query.query_properties(0)
    lines = [head(properties.name)]
    print(lines[0])
    for line in rates(properties):
        print(line, flush=True)
        lines.append(line)
    if folder is not None:
        (folder / f"{prefix(properties.name)}-rates.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
