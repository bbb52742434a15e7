"""The products of all kernels on a GPU, whose worker imports its task here, and on the emulator."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import memlab
from benchmarks.gpu_results import conditions, head, prefix
from benchmarks.tensor_sums.inputs import KINDS, Matrices, blocks_per_kind, matrices
from benchmarks.tensor_sums.kernels import BITS, Kernel, kernels
from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.worker import call_in_worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.device.gpu.worker import WorkerLink

    Words = NDArray[np.uint32]

SOURCE_NAME, ENTRY = "product.cu", "product"
LISTED = (
    Kernel("wgmma", 16, 32, "f32", "e4m3", "e4m3"),
    Kernel("wgmma", 16, 32, "f32", "e5m2", "e4m3"),
    Kernel("wgmma", 16, 32, "f16", "e4m3", "e5m2"),
    Kernel("wgmma", 16, 16, "f32", "bf16", "bf16"),
    Kernel("wgmma", 16, 16, "f16", "f16", "f16"),
    Kernel("wgmma", 16, 8, "f32", "tf32", "tf32"),
    Kernel("mma", 8, 16, "f32", "f16", "f16"),
    Kernel("mma", 8, 32, "f32", "e4m3", "e5m2"),
)
"""Kernels whose products are written with their matrices ..."""
LISTED_KINDS = (
    *("near", "uniform", "cancelling", "zeros", "subnormal", "special", "large"),
    "zero_times_huge",
)
"""... of one product of each of these kinds ..."""
LISTED_ROWS = LISTED_COLUMNS = 8
"""... as many rows of A and C, evenly distributed, and as many columns."""


@dataclass(frozen=True)
class Compiled:
    """A kernel's machine code and its launch.

    Attributes:
        name: Its name.
        cubin: The machine code.
        threads: Threads of a block.
        matrices: Its arguments.
    """

    name: str
    cubin: bytes
    threads: int
    matrices: Matrices


def compiled(kernel: Kernel, capability: tuple[int, int]) -> Compiled:
    """Compile a kernel and draw its matrices."""
    unit = TranslationUnit(kernel.source, SOURCE_NAME, capability)
    return Compiled(kernel.name, compile_unit(unit).cubin, kernel.threads, matrices(kernel))


def results_of_gpu(link: WorkerLink, launches: Sequence[Compiled]) -> dict[str, Words]:
    """The worker's task: D of every kernel, by its name."""
    found = {}
    with GpuSession(0, link) as session:
        for each in launches:
            kernel = session.load(each.cubin, ENTRY)
            arguments = [session.array(words) for words in each.matrices]
            out = session.array(each.matrices.c.nbytes)
            grid = (len(each.matrices.c), 1, 1)
            session.launch(kernel, grid, (each.threads, 1, 1), [*arguments, out])
            found[each.name] = session.read(out, np.empty_like(each.matrices.c))
    return found


def results_of_emulator(kernel: Kernel) -> Words:
    """D of a kernel on an emulated H100."""
    given = matrices(kernel)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, SOURCE_NAME)
        path.write_text(kernel.source, encoding="utf-8")
        run = memlab.run(
            f"{path}:{ENTRY}",
            grid=len(given.c),
            block=kernel.threads,
            args=[*given, memlab.out(given.c.shape, np.uint32)],
            device="h100",
            keep=False,
        )
    found: Words = run.outputs["out"]
    return found


def differing(kernel: Kernel, measured: Words, emulated: Words) -> tuple[int, int]:
    """How many sums a kernel has, and how many of them differ in any bit."""
    of = {16: np.uint16, 32: np.uint32}[BITS[kernel.total]]
    sums, others = measured.view(of), emulated.view(of)
    return sums.size, int(np.count_nonzero(sums != others))


def listed_products(
    results: Mapping[str, Words],
) -> Iterator[tuple[str, NDArray[np.unsignedinteger]]]:
    """Some products with their matrices, as arrays of bits by `wgmma.k32.f32.e4m3.e4m3 a`."""
    for kernel in LISTED:
        given = matrices(kernel)
        chosen = [KINDS.index(kind) * blocks_per_kind(kernel) for kind in LISTED_KINDS]
        rows = np.arange(LISTED_ROWS) * (kernel.rows // (LISTED_ROWS - 1))
        columns = np.arange(LISTED_COLUMNS)
        name = f"{kernel.instruction}.k{kernel.depth}.{kernel.total}.{kernel.of_a}.{kernel.of_b}"
        for matrix, words, number, taken in (
            ("a", given.a[:, 0], kernel.of_a, (rows, slice(None))),
            ("b", given.b[:, 0], kernel.of_b, (columns, slice(None))),
            ("c", given.c, kernel.total, np.ix_(rows, columns)),
            ("d", results[kernel.name], kernel.total, np.ix_(rows, columns)),
        ):
            elements = words.view({8: np.uint8, 16: np.uint16, 32: np.uint32}[BITS[number]])
            yield f"{name} {matrix}", np.stack([elements[block][taken] for block in chosen])


def measure(folder: Path) -> int:
    """Write the results of the first GPU."""
    properties = gpu_query.query_properties(0)
    print(head(properties.name))
    print(conditions(properties), flush=True)
    launches = [compiled(kernel, properties.compute_capability) for kernel in kernels()]
    results: dict[str, Any] = call_in_worker(results_of_gpu, launches)
    folder.mkdir(parents=True, exist_ok=True)
    start = prefix(properties.name)
    listed: dict[str, Any] = dict(listed_products(results))
    np.savez_compressed(folder / f"{start}-sums.npz", **results)
    np.savez_compressed(folder / f"{start}-products.npz", **listed)
    return 0


def compare(file: Path, only: Sequence[str]) -> int:
    """Print how many results of a file the emulated device does not give; 1 where there are any."""
    total = wrong = 0
    with np.load(file) as measured:
        for kernel in kernels():
            if only and not any(text in kernel.name for text in only):
                continue
            count, others = differing(kernel, measured[kernel.name], results_of_emulator(kernel))
            print(f"{kernel.name}: {others} of {count} sums differ", flush=True)
            total, wrong = total + count, wrong + others
    print(f"{wrong} of {total} sums differ")
    return int(wrong > 0)
