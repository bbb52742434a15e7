"""The machine code of the tensor cores against NumPy."""

import re

import numpy as np
import pytest
from lowered_rows import Array, CompiledRows

from memlab.device.emulator.isa import tensor, wmma
from memlab.device.emulator.isa.table import TABLE
from tests.reference import tensor as truth
from tests.reference.table import reference

WARPS = 24
OF_HOPPER = (*tensor.mma_products(), *wmma.wmma_products())
OLDER = tuple(tensor.with_older_sums(p) for p in OF_HOPPER if p.is_aligned)
PRODUCTS = {f"{p.opcode} result": p for p in OF_HOPPER}
OLDER_PRODUCTS = {f"{p.opcode} result": p for p in OLDER}
WMMA = [f"wmma.*{shape}" for shape in wmma.SHAPES]
WMMA_PER_SHAPE = 36  # of f16 to u8, of which a part is compiled usually
PLAIN, SPARSE = r"mma\.sync", r"mma\.sp"
MOVES = [
    opcode
    for opcode, row in TABLE.items()
    if row.kind == "warp" and opcode.startswith(("ldmatrix", "stmatrix", "movmatrix"))
]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan]


def numbers(ptx_type: str, rng: np.random.Generator) -> Array:
    """A register of warps, shape (warps, 32): numbers of one size, of all sizes, and any bits."""
    if ptx_type in tensor.INTEGERS:
        words = rng.integers(0, 1 << 32, (WARPS, 32), np.uint32)
        words[::4] = rng.choice(np.array([0, 0x7F7F7F7F, 0x80808080, 0xFFFFFFFF], "u4"), 32)
        words[1::4] = rng.choice(np.array([0x7FFFFFFF, 0x80000000], "u4"), (WARPS // 4, 32))
        return words
    if ptx_type in ("e4m3", "e5m2"):
        words = rng.integers(0, 1 << 32, (WARPS, 32), np.uint32)
        words[: WARPS * 3 // 4] &= np.uint32(0xBFBF_BFBF)  # neither infinite nor NaN
        return words
    real = rng.standard_normal((WARPS, 32, 2))
    wide = {"f16": 4, "bf16": 30, "tf32": 30, "f32": 30, "f64": 300}[ptx_type]
    real[WARPS // 4 :] *= 2.0 ** rng.integers(-wide, wide, (WARPS * 3 // 4, 32, 2))
    real[WARPS // 2 : WARPS * 3 // 4] *= 2.0**-wide  # subnormal ones among them
    special = rng.random(real.shape) < 0.02
    special[: WARPS * 3 // 4] = False
    real[special] = rng.choice(SPECIAL, special.sum())
    if ptx_type == "f64":
        return real[:, :, 0]
    if ptx_type == "f16":
        return real.astype(np.float16).view(np.uint32)[:, :, 0]
    words = real.astype(np.float32).view(np.uint32)
    words[-2:] = rng.integers(0, 1 << 32, words[-2:].shape)
    if ptx_type == "bf16":
        return words[:, :, 0] >> np.uint32(16) | words[:, :, 1] & np.uint32(0xFFFF_0000)
    return words[:, :, 0]


def assert_same(found: Array, expected: Array, ptx_type: str) -> None:
    """Bit for bit, but for the payloads of NaNs."""
    dtype = {"f16": "f2", "f32": "f4", "f64": "f8", "s32": "i4"}[ptx_type]
    one, other = (np.ascontiguousarray(array).view(dtype) for array in (found, expected))
    np.testing.assert_array_equal(one, other)
    if dtype != "i4":
        known = ~np.isnan(one)
        np.testing.assert_array_equal(np.signbit(one)[known], np.signbit(other)[known])


@pytest.mark.parametrize("family", [PLAIN, SPARSE, *WMMA])
def test_products(family: str) -> None:
    chosen = [opcode for opcode in PRODUCTS if re.match(family, opcode)]
    part = slice(4, None, 4) if len(chosen) == WMMA_PER_SHAPE else slice(None)
    assert_products(chosen[:: len(chosen) // 30] if family in (PLAIN, SPARSE) else chosen[part])


@pytest.mark.slow
@pytest.mark.parametrize("family", [PLAIN, SPARSE, *WMMA])
def test_all_products(family: str) -> None:
    assert_products([opcode for opcode in PRODUCTS if re.match(family, opcode)])


@pytest.mark.parametrize("family", [PLAIN, SPARSE, "wmma"])
def test_products_before_hopper(family: str) -> None:
    chosen = [opcode for opcode in OLDER_PRODUCTS if re.match(family, opcode)]
    assert_products(chosen[:: max(len(chosen) // 12, 1)])


@pytest.mark.slow
def test_all_products_before_hopper() -> None:
    assert_products(list(OLDER_PRODUCTS))


def assert_products(chosen: list[str]) -> None:
    """Compare products with NumPy's."""
    rng = np.random.default_rng(1)
    rows = CompiledRows(chosen)
    active = np.ones((WARPS, 32), np.bool_)
    for opcode in chosen:
        product = (PRODUCTS | OLDER_PRODUCTS)[opcode]
        registers = [
            numbers(matrix.element, rng)
            for matrix in (product.left, product.right, product.added)
            for _ in range(matrix.registers)
        ]
        if product.sparsity is not None:
            registers.append(rng.integers(0, 1 << 32, (WARPS, 32), np.uint32))
            selector = rng.integers(4 // product.sparsity.threads)
            registers.append(np.full((WARPS, 32), selector, np.uint32))
        found = rows.run(opcode, [register.reshape(-1) for register in registers])
        with np.errstate(all="ignore"):
            expected = reference(opcode)(active, *registers)
        for result, wanted in zip(found, expected, strict=True):
            assert_same(result.reshape(-1, 32), wanted, product.result.element)


def test_products_equal_those_of_an_h100() -> None:
    products = truth.products_of_an_h100("mma")
    opcodes = {name: _opcode(name) for name in products}
    rows = CompiledRows(opcodes.values())
    assert len(products) == 2
    for name, matrices in products.items():
        twice = [np.concatenate([matrices[one]] * 2, axis=1) for one in "ac"]  # 8 rows of 16
        given = truth.mma_registers(twice[0], matrices["b"].swapaxes(1, 2), twice[1])
        found = rows.run(opcodes[name], [register.reshape(-1) for register in given])
        result = truth.mma_result([one.reshape(-1, 32) for one in found], matrices["d"].dtype)
        np.testing.assert_array_equal(result[:, :8], matrices["d"])
        np.testing.assert_array_equal(result[:, 8:], matrices["d"])


def _opcode(name: str) -> str:
    """The row of `mma.k16.f32.f16.f16`."""
    _, depth, total, of_a, of_b = name.split(".")
    return f"mma.sync.m16n8{depth}.row.col.{total}.{of_a}.{of_b}.{total} result"


def test_moves_of_rows_between_lanes() -> None:
    rng = np.random.default_rng(2)
    rows = CompiledRows(MOVES)
    for opcode in MOVES:
        words = [rng.integers(0, 1 << 32, (WARPS, 32), np.uint32) for _ in TABLE[opcode].of]
        expected = reference(opcode)(None, *words)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = rows.run(opcode, [word.reshape(-1) for word in words])
        for result, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(result.reshape(-1, 32), wanted)
