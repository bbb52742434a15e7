"""Ten typical user kernels: their command lines, and their traffic computed by brute force.

The traffic comes from the addresses alone: a request is a warp with a lane that takes part, its
sectors are the distinct pieces of 32 bytes that its lanes touch. Arrays start at a multiple of 32
bytes, on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from paths import DATA

FOLDER = DATA / "own"
WARP, SECTOR_BYTES = 32, 32


@dataclass
class Traffic:
    """Whole-grid totals of global memory."""

    load_requests: int = 0
    load_sectors: int = 0
    store_requests: int = 0
    store_sectors: int = 0
    reduction_requests: int = 0
    reduction_sectors: int = 0

    def load(self, elements: Any, width: int, active: Any) -> None:
        requests, sectors = brute_force(elements, width, active)
        self.load_requests += requests
        self.load_sectors += sectors

    def store(self, elements: Any, width: int, active: Any) -> None:
        requests, sectors = brute_force(elements, width, active)
        self.store_requests += requests
        self.store_sectors += sectors

    def reduce(self, elements: Any, width: int, active: Any) -> None:
        requests, sectors = brute_force(elements, width, active)
        self.reduction_requests += requests
        self.reduction_sectors += sectors


def brute_force(elements: Any, width: int, active: Any) -> tuple[int, int]:
    """Requests and sectors of one instruction: element numbers by thread, whole warps."""
    taking = np.broadcast_to(active, np.shape(elements)).reshape(-1, WARP)
    first = np.asarray(elements, np.int64).reshape(-1, WARP) * width
    touched = np.concatenate(
        [np.where(taking, (first + at) // SECTOR_BYTES, -1) for at in (0, width - 1)], axis=1
    )
    touched.sort(axis=1)
    fresh = np.diff(touched, axis=1, prepend=-1) > 0
    return int(taking.any(axis=1).sum()), int(fresh.sum())


@dataclass(frozen=True)
class Case:
    """A kernel: its words after `memlab run FOLDER/`, and its traffic.

    Attributes:
        target: The file and the entry.
        grid: Blocks, as typed.
        block: Threads of a block, as typed.
        arguments: The `--arg` options, in order.
        traffic: By brute force.
        files: Arrays that arguments read, by file name.
    """

    target: str
    grid: str
    block: str
    arguments: tuple[str, ...]
    traffic: Traffic
    files: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return Path(self.target.split(":")[0]).stem

    def words(self, folder: Path) -> list[str]:
        """The command line without `memlab`; also writes the files that it needs."""
        for file, array in self.files.items():
            np.save(folder / file, array)
        arguments = (argument.replace("@", f"@{folder}/") for argument in self.arguments)
        options = [word for argument in arguments for word in ("--arg", argument)]
        reference = f"{FOLDER / 'references.py'}:{self.name}"
        geometry = ["--grid", self.grid, "--block", self.block]
        return ["run", f"{FOLDER}/{self.target}", *geometry, *options, "--reference", reference]


def threads(blocks: int, block: int = 256) -> Any:
    return np.arange(blocks * block)


def reduce_shuffle(n: int) -> Case:
    blocks, traffic = 64, Traffic()
    first = threads(blocks)
    for i in range(0, n, first.size):
        traffic.load(first + i, 4, first + i < n)
    traffic.reduce(0 * first, 4, first % WARP == 0)
    arguments = (f"in:f32[{n}]", "inout:f32[1]=zeros", f"i32={n}")
    return Case("reduce_shuffle.cu:reduce_shuffle", str(blocks), "256", arguments, traffic)


def reduce_shared(n: int) -> Case:
    blocks, traffic = -(-n // 256), Traffic()
    i = threads(blocks)
    traffic.load(i, 4, i < n)
    traffic.store(i // 256, 4, i % 256 == 0)
    arguments = (f"f32[{n}]", f"out:f32[{blocks}]", f"i32={n}")
    return Case("reduce_shared.cu:reduce_shared<256>", str(blocks), "256", arguments, traffic)


def histogram(n: int) -> Case:
    blocks, traffic = -(-n // 512), Traffic()
    i = threads(blocks, 512)
    traffic.load(i, 1, i < n)
    data = np.random.default_rng(7).integers(0, 256, n, np.uint8)
    for block in range(blocks):  # adds up the bins that it counted anything in
        counted = np.bincount(data[512 * block : 512 * (block + 1)], minlength=256)
        traffic.reduce(np.arange(256), 4, counted > 0)
    arguments = (f"u8[{n}]=@bytes.npy", "inout:u32[256]=zeros", f"i32={n}")
    files = {"bytes.npy": data}
    return Case("histogram.cu:histogram", str(blocks), "512", arguments, traffic, files)


def stencil3d(n: int) -> Case:
    nx = round(n ** (1 / 3))
    ny, nz = nx + 1, nx + 2
    blocks = (-(-nx // 32), -(-ny // 4), -(-nz // 2))
    z, y, x, tz, ty, tx = np.indices((*blocks[::-1], 2, 4, 32), np.int32, sparse=True)
    x, y, z = 32 * x + tx, 4 * y + ty, 2 * z + tz
    inside = (x > 0) & (y > 0) & (z > 0) & (x < nx - 1) & (y < ny - 1) & (z < nz - 1)
    at = (z * ny + y) * nx + x
    traffic = Traffic()
    for step in (0, -1, 1, -nx, nx, -nx * ny, nx * ny):
        traffic.load(at + step, 4, inside)
    traffic.store(at, 4, inside)
    box = f"f32[{nz},{ny},{nx}]"
    arguments = (box, f"inout:{box}=zeros", f"i32={nx}", f"i32={ny}", f"i32={nz}", "f32=0.125")
    return Case("stencil3d.cu:stencil3d", ",".join(map(str, blocks)), "32,4,2", arguments, traffic)


def csr(n: int) -> Case:
    generator, rows = np.random.default_rng(5), max(n // 12, 1)
    length = generator.integers(0, 25, rows)
    start = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    column = generator.integers(0, rows, start[-1]).astype(np.int32)
    blocks, traffic = -(-rows // 128), Traffic()
    row = threads(blocks, 128)
    active = row < rows
    traffic.load(row, 4, active)
    traffic.load(row + 1, 4, active)
    at = np.where(active, start[np.minimum(row, rows - 1)], 0)
    left = np.where(active, length[np.minimum(row, rows - 1)], 0)
    for step in range(length.max()):
        going = left > step
        element = np.where(going, at + step, 0)
        traffic.load(element, 4, going)
        traffic.load(element, 4, going)
        traffic.load(column[element], 4, going)
    traffic.store(row, 4, active)
    arguments = (
        f"i32[{rows + 1}]=@start.npy",
        f"i32[{column.size}]=@column.npy",
        f"f32[{column.size}]",
        f"f32[{rows}]",
        f"out:f32[{rows}]",
        f"i32={rows}",
    )
    files = {"start.npy": start, "column.npy": column}
    return Case("csr.cu:csr", str(blocks), "128", arguments, traffic, files)


def softmax(n: int) -> Case:
    columns = 1000 if n > 100_000 else 300
    rows = -(-n // columns)
    traffic, (row, thread) = Traffic(), np.indices((rows, 256), sparse=True)
    for first in range(0, columns, 256):
        active = first + thread < columns
        at = row * columns + first + thread
        for _ in range(3):
            traffic.load(at, 2, active)
        traffic.store(at, 4, active)
    arguments = (f"f16[{rows},{columns}]", f"out:f32[{rows},{columns}]", f"i32={columns}")
    return Case("softmax.cu:softmax", str(rows), "256", arguments, traffic)


def nbody(n: int) -> Case:
    bodies = round(n**0.5)  # each pair is an element
    blocks, traffic = -(-bodies // 128), Traffic()
    i = threads(blocks, 128)
    traffic.load(i, 16, i < bodies)
    for first in range(0, bodies, 128):
        other = first + i % 128
        traffic.load(other, 16, other < bodies)
    traffic.store(i, 16, i < bodies)
    arguments = (f"f32[{bodies},4]", f"out:f32[{bodies},4]", f"i32={bodies}", "f32=0.01")
    return Case("nbody.cu:nbody", str(blocks), "128", arguments, traffic)


def copy4(n: int) -> Case:
    count = max(n // 4, 1)
    blocks, traffic = -(-count // 256), Traffic()
    i = threads(blocks)
    traffic.load(i, 16, i < count)
    traffic.store(i, 16, i < count)
    arguments = (f"f32[{count},4]", f"out:f32[{count},4]", f"i32={count}")
    return Case("copy4.cu:copy4", str(blocks), "256", arguments, traffic)


def particles(n: int) -> Case:
    blocks, traffic = -(-n // 256), Traffic()
    i = threads(blocks)
    for part in range(6):
        traffic.load(7 * i + part, 4, i < n)
    for part in (0, 1, 2, 5):
        traffic.store(7 * i + part, 4, i < n)
    arguments = (f"inout:f32[{n},7]", f"i32={n}", "f32=0.01")
    return Case("particles.cu:particles", str(blocks), "256", arguments, traffic)


def daxpy(n: int) -> Case:
    blocks, traffic = -(-n // 256), Traffic()
    i = threads(blocks)
    for _ in range(2):
        traffic.load(i, 8, i < n)
    traffic.store(i, 8, i < n)
    arguments = ("f64=-1.5", f"f64[{n}]", f"inout:f64[{n}]", f"u64={n}")
    return Case("daxpy.cu:daxpy", str(blocks), "256", arguments, traffic)


KERNELS: tuple[Callable[[int], Case], ...] = (
    reduce_shuffle,
    reduce_shared,
    histogram,
    stencil3d,
    csr,
    softmax,
    nbody,
    copy4,
    particles,
    daxpy,
)
"""Functions that make a case for about so many elements."""
