"""The machine code of floating point, against NumPy, rational and decimal arithmetic."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from lowered_rows import Case, CompiledRows, run_row
from numpy.typing import NDArray
from row_sources import assert_same, make_sources

from memlab.device.emulator.isa import elementary
from tests.reference import polynomials
from tests.reference.floating_rows import OPCODES
from tests.reference.table import reference

Array = NDArray[Any]

_SIGNIFICAND_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_TYPES = ("bf16x2", "f16x2", "f32x2", "bf16", "f16", "f32", "f64")


def number_type(opcode: str) -> str:
    """The floating-point type of a row's sources; packed ones end in `x2`."""
    return next(kind for kind in reversed(opcode.split(".")) if kind in _TYPES)


def near_sources(kind: str, count: int, lanes: int = 1024) -> list[Array]:
    """Random sources of one type whose sums and products cancel, tie and round."""
    rng = np.random.default_rng(1)
    bits = _SIGNIFICAND_BITS[kind]
    short = rng.choice([3, bits // 2, bits], (count, lanes))  # short significands make ties
    values = np.round(rng.uniform(1, 2, (count, lanes)) * 2.0 ** (short - 1))
    values *= 2.0 ** (rng.integers(-bits - 2, bits + 2, (count, lanes)) // 2 - short)
    values *= rng.choice([-1, 1], (count, lanes))
    if count == 3:  # the addend near the product, or that rounded
        product = values[0] * values[1]
        values[2] = np.where(rng.integers(0, 2, lanes) == 0, -product, values[2])
        values[2] *= 2.0 ** rng.integers(-2, 3, lanes)
    scale = {"f16": 14, "bf16": 126, "f32": 126, "f64": 1022}[kind]
    values[0] *= np.where(np.arange(lanes) % 4 == 0, 2.0**-scale, 1)  # subnormal results
    if kind == "bf16":
        return [(v.astype("f4").view("u4") >> np.uint32(16)).astype("u2") for v in values]
    return list(values.astype({"f16": "f2", "f32": "f4", "f64": "f8"}[kind]))


def sources_of(opcode: str) -> list[Array]:
    """Sources of a row: special values, random bits and numbers that cancel or tie."""
    kind, count = number_type(opcode), len(Case(opcode).of)
    part = kind.removesuffix("x2")
    of = ("f32" if kind == "f32x2" else kind,) * count
    word = {"f32x2": "u8", "f16x2": "u4", "bf16x2": "u4"}.get(kind)
    sources = []
    for made, near in zip(make_sources(of), near_sources(part, count), strict=True):
        both = [array.view(word) if word else array for array in (made, near)]
        together = np.concatenate(both)
        sources.append(np.resize(together, len(together) + -len(together) % 32))
    return sources


def check(opcodes: list[str]) -> None:
    """Compare rows with the reference, bit for bit."""
    compiled = CompiledRows(opcodes)
    with np.errstate(all="ignore"):
        for opcode in opcodes:
            sources = sources_of(opcode)
            results = [*compiled.run(opcode, sources), np.asarray(reference(opcode)(*sources))]
            kind = number_type(opcode)
            part = {"f16x2": "f2", "f32x2": "f4"}.get(kind)  # so that a NaN equals any other
            if opcode.startswith(("min", "max")):  # whose NaN is the canonical one
                part = {"f32": "u4", "f64": "u8"}.get(kind, "u2")
            if part:
                results = [result.view(part) for result in results]
                sources = [source.view(part) for source in sources]
            assert_same(opcode, results[:1], results[1], sources)


_DIRECTED = [o for o in OPCODES if {"rz", "rm", "rp"} & set(o.split("."))]


def test_every_row_that_rounds_to_nearest() -> None:
    check([opcode for opcode in OPCODES if opcode not in _DIRECTED])


def test_every_row_of_the_other_modes() -> None:
    check([opcode for opcode in _DIRECTED if not opcode.startswith("mad.")])


@pytest.mark.parametrize(
    ("opcode", "function"),
    [
        ("ex2.approx.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("sin.approx.f32", np.sin),
        ("cos.approx.f32", np.cos),
        ("tanh.approx.f32", np.tanh),
    ],
)
def test_approximations_are_float64_rounded_once(opcode: str, function: np.ufunc) -> None:
    rng = np.random.default_rng(2)
    lanes = 1 << 17
    bits = rng.integers(0, 1 << 32, lanes, dtype=np.uint32).view("f4")
    usual = rng.normal(0, 10, lanes).astype("f4")
    about_one = (1 + rng.normal(0, 1e-3, lanes)).astype("f4")
    with np.errstate(all="ignore"):
        for values in (bits, usual, about_one):
            result = run_row(opcode, [values])[0]
            expected = function(values.astype("f8")).astype("f4")
            same = (result == expected) | (np.isnan(result) & np.isnan(expected))
            assert np.count_nonzero(~same) <= 1, (opcode, values[~same])
            apart = result[~same].view("i4") - expected[~same].view("i4")
            assert (np.abs(apart) <= 1).all()


def test_sine_and_cosine_of_what_is_nearly_a_multiple_of_half_pi() -> None:
    # Convergents of pi/2 times powers of two, and the worst float32: 16367173 * 2^72 (Muller,
    # "Elementary functions", 3rd edition, table 11.1).
    values = [16367173.0 * 2.0**72, 1.5707964, 3.1415927, 355.0, 103993.0, 1e22, 3.4028235e38]
    values += [float(np.float32(k * np.pi / 2)) for k in (5, 1e3, 1e6, 2e7, 1e10, 1e20, 1e38)]
    values += [2.0**24, 2.0**24 - 1, 2.0**24 + 2, 2.0**25, 2.0**56, 2.0**57, 2.0**88, 2.0**127]
    lanes = np.resize(np.array([*values, *(-v for v in values)], "f4"), 64)
    sines, cosines = (run_row(f"{name}.approx.f32", [lanes])[0] for name in ("sin", "cos"))
    turn = 2 * polynomials.PI
    for value, sine, cosine in zip(lanes.tolist(), sines, cosines, strict=True):
        angle = Decimal(value) % turn
        assert np.float32(polynomials.sine(angle)) == sine, value
        assert np.float32(polynomials.cosine(angle)) == cosine, value


def test_a_divisor_above_2_to_the_126_counts_as_infinite() -> None:
    divisors = np.resize(np.array([2.0**126, 1.5 * 2.0**126, -(2.0**127), np.inf], "f4"), 32)
    quotients = run_row("div.approx.f32", [np.full(32, 2.0**126, "f4"), divisors])[0]
    assert quotients[:4].tolist() == [1, 0, 0, 0]
    assert np.signbit(quotients[:4]).tolist() == [False, False, True, False]


def test_coefficients_are_those_derived() -> None:
    assert polynomials.exp2_minus_one() == elementary.EXP2_MINUS_ONE
    assert polynomials.log2() == elementary.LOG2
    assert polynomials.sine_rest() == elementary.SINE
    assert polynomials.cosine_rest() == elementary.COSINE
