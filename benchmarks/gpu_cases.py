"""The launches that are timed on a GPU: matrix products, a copy, and four short kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.devices import launch_limits
from memlab.kernels.catalog import find_kernel
from memlab.kernels.launch import Argument, Arrays, Buffer, Launch, Reference, Scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.device.properties import DeviceProperties

GIBIBYTE = 2**30
SOURCE = Path(__file__).with_name("timed.cu")

MATMULS = [
    (kernel, tile, width)
    for width in (2048, 4096)
    for kernel, tile in (("naive", 16), ("tiled", 8), ("tiled", 16), ("tiled", 32))
]
SHORT: dict[str, tuple[str, dict[str, int]]] = {
    "tiled 16, 256": ("tiled", {"width": 256, "tile": 16}),
    "aligned 16 MiB": ("aligned", {"n": 2**22}),
}
"""Kernels of the catalog that take less than 20 us: one has few loads in flight, one streams."""

CHAINS = 8  # as in timed.cu
TRIPS = 965
WAITED_CLOCKS = 32_300
"""Trips and clocks for which two kernels take 19 to 20 us on an H200: just under 20 us, because
events have steps of 0.2 us (docs/results/h200-rates.txt)."""


@dataclass(frozen=True)
class Case:
    """A compiled launch to time.

    Attributes:
        name: Its name in tables.
        launch: The launch.
        compiled: Its machine code.
    """

    name: str
    launch: Launch
    compiled: CompiledKernel


def cases(properties: DeviceProperties) -> list[Case]:
    """Make the launches that are timed."""
    multiprocessors = properties.multiprocessor_count or 1
    launches = {
        f"{kernel} {tile}, {width}": find_kernel(kernel).prepare(
            {"width": width, "tile": tile}, launch_limits(properties)
        )
        for kernel, tile, width in MATMULS
    }
    for name, (kernel, parameters) in SHORT.items():
        launches[name] = find_kernel(kernel).prepare(parameters, launch_limits(properties))
    launches["FMA chains"] = _fma_chains(multiprocessors, 256)
    launches[f"wait {WAITED_CLOCKS} clocks"] = _wait(multiprocessors, 1024)
    launches["copy 1 GiB"] = _copy(GIBIBYTE)
    return [
        Case(name, launch, compile_launch(launch, properties.compute_capability))
        for name, launch in launches.items()
    ]


def _fma_chains(blocks: int, threads: int) -> Launch:
    count = blocks * threads
    arguments = (
        Buffer("from", (count,), "float32", "in"),
        Buffer("to", (count,), "float32", "out"),
        Scalar("trips", "int32", TRIPS),
        Scalar("factor", "float32", -1.0),
        Scalar("addend", "float32", 1.0),
    )
    flop = 2 * CHAINS * TRIPS * count
    return _launch("fma_chains", blocks, threads, arguments, _chained, 8 * count, flop)


def _wait(blocks: int, threads: int) -> Launch:
    arguments = (
        Buffer("to", (blocks,), "float32", "out"),
        Scalar("clocks", "int64", WAITED_CLOCKS),
    )
    return _launch("wait", blocks, threads, arguments, _position, 4 * blocks)


def _copy(size: int) -> Launch:
    count = size // 16
    arguments = (
        Buffer("from", (size // 4,), "float32", "in"),
        Buffer("to", (size // 4,), "float32", "out"),
        Scalar("count", "int64", count),
    )
    return _launch("copy", count // 256, 256, arguments, _identity, 2 * size)


def _launch(
    entry: str,
    blocks: int,
    threads: int,
    arguments: tuple[Argument, ...],
    reference: Reference,
    compulsory_bytes: int,
    flop: int = 0,
) -> Launch:
    return Launch(
        kernel=entry,
        parameters={},
        source=SOURCE.read_text(encoding="utf-8"),
        source_name=SOURCE.name,
        entry=entry,
        defines={},
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        dynamic_shared_bytes=0,
        arguments=arguments,
        flop=flop,
        compulsory_bytes=compulsory_bytes,
        references={"to": reference},
        tolerance=1e-6 if flop else 0.0,  # sixteen roundings of float32, which is 6e-8 each
    )


def _chained(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    first = inputs["from"][flat_index].astype(np.float64)
    ends = [(1 - (first + chain)) if TRIPS % 2 else first + chain for chain in range(CHAINS)]
    return np.sum(ends, axis=0)  # type: ignore[no-any-return]


def _position(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    return flat_index.astype(np.float64)


def _identity(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    return inputs["from"][flat_index].astype(np.float64)
