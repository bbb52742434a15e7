"""Arithmetic micro-benchmarks: FMAs on the CUDA cores, matrix products on the tensor cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from memlab.kernels.peaks.records import InputGenerator, LoopBenchmark

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

# fma.cu, mma.cu, wgmma.cu
_FMA_CHAINS, _FMA_REPEAT, _FMA_THREADS = 8, 63, 1024
_MMA_CHAINS, _MMA_REPEAT, _MMA_THREADS = 8, 4, 256
_WGMMA_GROUPS, _WGMMA_M, _WGMMA_N, _WGMMA_ROW_BYTES = 2, 64, 256, 128

TENSOR_DTYPES = ("tf32", "fp16", "bf16")


def _fma_inputs(dtype: type[np.floating[Any]]) -> InputGenerator:
    """Values x between 0 and 1; every type represents x and 1 - x exactly."""
    count = _FMA_CHAINS * _FMA_THREADS * _values_per_register(dtype)

    def draw(generator: Generator) -> NDArray[Any]:
        return (generator.integers(1, 1024, size=count) / 1024).astype(dtype)

    return draw


def _values_per_register(dtype: type[np.floating[Any]]) -> int:
    return 2 if dtype is np.float16 else 1


def _fma_expected(data: NDArray[Any]) -> NDArray[np.float64]:
    """The expected values: after an odd number of steps, x has become 1 - x."""
    result: NDArray[np.float64] = 1.0 - data.astype(np.float64)
    return result


def _fma_loop(kind: str, label: str, dtype: type[np.floating[Any]]) -> LoopBenchmark:
    values = _values_per_register(dtype)
    return LoopBenchmark(
        key=f"{kind}_fma",
        label=label,
        limit=f"{kind}_fma" if dtype is np.float16 else kind,
        unit="FLOP/s",
        source_file="fma.cu",
        entry=f"fma_{kind}",
        threads=_FMA_THREADS,
        blocks_per_sm=1,
        work_per_trip=2 * values * _FMA_CHAINS * _FMA_REPEAT * _FMA_THREADS,
        footprint=0,
        inputs=_fma_inputs(dtype),
        output=np.dtype(dtype).name,
        outputs_per_block=values * _FMA_CHAINS * _FMA_THREADS,
        expected=_fma_expected,
    )


def _random_tensor_values(generator: Generator, kind: str, count: int) -> NDArray[Any]:
    """Normally distributed numbers of a tensor core type; TF32 is a float32 with fewer bits."""
    values = generator.standard_normal(count).astype(np.float32)
    if kind == "tf32":
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values.astype(ml_dtypes.bfloat16 if kind == "bf16" else np.float16)


def _mma_inputs(kind: str) -> InputGenerator:
    registers = (4 + 2 * _MMA_CHAINS) * _MMA_THREADS

    def draw(generator: Generator) -> NDArray[Any]:
        return _random_tensor_values(
            generator, kind, registers if kind == "tf32" else 2 * registers
        )

    return draw


def _mma_expected(data: NDArray[Any]) -> NDArray[np.float64]:
    """The sum of the elements of each warp's products A B.

    It is the sum over k of the sum of A's column k times the sum of B's row k. The position of a
    register's values along k follows from the fragment layouts: PTX ISA, "Matrix Fragments for
    mma.m16n8k8" and "mma.m16n8k16".
    """
    halves = 1 if data.dtype == np.float32 else 2
    values = data.astype(np.float64).reshape(4 + 2 * _MMA_CHAINS, _MMA_THREADS // 32, 32, halves)
    lane, half = np.meshgrid(np.arange(32), np.arange(halves), indexing="ij")
    within = lane % 4 * halves + half
    span = 4 * halves
    sums = np.zeros(_MMA_THREADS // 32)
    for warp in range(_MMA_THREADS // 32):
        columns = np.zeros(2 * span)
        for register in range(4):
            np.add.at(columns, within + span * (register // 2), values[register, warp])
        for chain in range(_MMA_CHAINS):
            rows = np.zeros(2 * span)
            for register in range(2):
                np.add.at(rows, within + span * register, values[4 + 2 * chain + register, warp])
            sums[warp] += _MMA_REPEAT * columns @ rows
    return sums


def _mma_loop(kind: str) -> LoopBenchmark:
    k = 8 if kind == "tf32" else 16
    return LoopBenchmark(
        key=f"{kind}_mma",
        label=f"{kind.upper()} tensor, mma.sync",
        limit=kind,
        unit="FLOP/s",
        source_file="mma.cu",
        entry=f"mma_{kind}",
        threads=_MMA_THREADS,
        blocks_per_sm=1,
        work_per_trip=2 * 16 * 8 * k * _MMA_CHAINS * _MMA_REPEAT * (_MMA_THREADS // 32),
        footprint=0,
        inputs=_mma_inputs(kind),
        output="float32",
        outputs_per_block=_MMA_THREADS,
        expected=_mma_expected,
    )


def _wgmma_inputs(kind: str) -> InputGenerator:
    size = (_WGMMA_GROUPS * _WGMMA_M + _WGMMA_N) * _WGMMA_ROW_BYTES

    def draw(generator: Generator) -> NDArray[Any]:
        return _random_tensor_values(generator, kind, size // (4 if kind == "tf32" else 2))

    return draw


def _wgmma_expected(data: NDArray[Any]) -> NDArray[np.float64]:
    """The sum of the elements of each group's product, with the 128-byte swizzle undone.

    In row r, the 16-byte piece p is at position p xor (r mod 8) (PTX ISA, "Swizzling Modes").
    """
    per_piece = 16 // data.dtype.itemsize
    rows = data.astype(np.float64).reshape(-1, 8, per_piece)
    number = np.arange(rows.shape[0])[:, None]
    straight = rows[number, np.arange(8)[None, :] ^ (number % 8)].reshape(rows.shape[0], -1)
    split = _WGMMA_GROUPS * _WGMMA_M
    b = straight[split:].sum(axis=0)
    groups = straight[:split].reshape(_WGMMA_GROUPS, _WGMMA_M, -1).sum(axis=1)
    result: NDArray[np.float64] = groups @ b
    return result


def _wgmma_loop(kind: str) -> LoopBenchmark:
    row_values = _WGMMA_ROW_BYTES // (4 if kind == "tf32" else 2)
    return LoopBenchmark(
        key=f"{kind}_wgmma",
        label=f"{kind.upper()} tensor, wgmma",
        limit=kind,
        unit="FLOP/s",
        source_file="wgmma.cu",
        entry=f"wgmma_{kind}",
        threads=128 * _WGMMA_GROUPS,
        blocks_per_sm=1,
        work_per_trip=2 * _WGMMA_M * _WGMMA_N * row_values * _WGMMA_GROUPS,
        footprint=0,
        inputs=_wgmma_inputs(kind),
        output="float32",
        outputs_per_block=128 * _WGMMA_GROUPS,
        expected=_wgmma_expected,
        dynamic_shared_bytes=(_WGMMA_GROUPS * _WGMMA_M + _WGMMA_N) * _WGMMA_ROW_BYTES,
        architecture=(9, 0),
    )


ARITHMETIC_LOOPS = (
    _fma_loop("fp64", "FP64 FMA", np.float64),
    _fma_loop("fp32", "FP32 FMA", np.float32),
    _fma_loop("fp16", "FP16 FMA", np.float16),
    *map(_mma_loop, TENSOR_DTYPES),
    *map(_wgmma_loop, TENSOR_DTYPES),
)
