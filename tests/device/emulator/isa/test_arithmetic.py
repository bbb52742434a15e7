"""The meaning of arithmetic, against exact rational arithmetic and Python's integers.

`test_isa` compares every row with hardware on fixed operands; here random bits look for what
those miss. One run of the emulator checks thousands of lanes.
"""

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import map_lanes

# Significand bits and the exponent of the least subnormal.
FORMATS = {"f16": (11, -24), "bf16": (8, -133), "f32": (24, -149), "f64": (53, -1074)}
LARGEST = {"f16": 15, "bf16": 127, "f32": 127, "f64": 1023}
quickly = settings(max_examples=25, deadline=None)


def round_exactly(value: Fraction, ptx_type: str, mode: str) -> Fraction | float:
    """A rational rounded to a format by the definition: to a multiple of its unit there."""
    precision, least = FORMATS[ptx_type]
    if value == 0:
        return value
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - precision + 1, least)
    down = math.floor(value / unit)
    rest = value / unit - down
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1)
    elif mode == "rz":
        up = value < 0 and rest > 0
    else:
        up = mode == "rp" and rest > 0
    result = (down + up) * unit
    limit = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** LARGEST[ptx_type]
    if abs(result) > limit:
        stays = mode == "rz" or ((mode == "rm") == (value > 0) and mode != "rn")
        size = limit if stays else math.inf
        return size if value > 0 else -size
    return result


def floats(ptx_type: str) -> st.SearchStrategy[list[int]]:
    """Any bits of a format, for 96 lanes' operands."""
    dtype = np.dtype({"f16": "u2", "bf16": "u2", "f32": "u4", "f64": "u8"}[ptx_type])
    size = 96 * dtype.itemsize
    return st.binary(min_size=size, max_size=size).map(lambda b: np.frombuffer(b, dtype).tolist())


def decode(bits: int, ptx_type: str) -> float:
    if ptx_type == "bf16":
        bits, ptx_type = bits << 16, "f32"
    code, size = {"f16": ("<e", 2), "f32": ("<f", 4), "f64": ("<d", 8)}[ptx_type]
    (value,) = struct.unpack(code, bits.to_bytes(size, "little"))
    return float(value)


OPERATIONS: dict[str, tuple[int, Callable[..., Fraction]]] = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b),
    "fma": (3, lambda a, b, c: a * b + c),
    "div": (2, lambda a, b: a / b),
}
CASES = [
    *(
        (name, kind, mode)
        for name in OPERATIONS
        for kind in ("f32", "f64")
        for mode in ("rn", "rz", "rm", "rp")
    ),
    *((name, kind, "rn") for name in ("add", "sub", "mul", "fma") for kind in ("f16", "bf16")),
]


def _neighbours(bits: list[int], kind: str, count: int) -> list[list[int]]:
    """Operands whose exponents lie together, so that sums cancel and round."""
    size = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}[kind]
    fraction = FORMATS[kind][0] - 1
    given = [bits[index::count][: len(bits) // count] for index in range(count)]
    exponents = (1 << size - 1) - (1 << fraction)
    if count == 3:  # the addend near the product
        bias = (1 << size - 2 - fraction) - 1 if size > 16 or kind == "f16" else 127
        for lane, (a, b) in enumerate(zip(given[0], given[1], strict=True)):
            if lane % 2:
                x = ((a & exponents) >> fraction) + ((b & exponents) >> fraction) - bias
                x = min(max(x + given[2][lane] % 5 - 2, 0), (exponents >> fraction) - 1)
                given[2][lane] = given[2][lane] & ~exponents | x << fraction
    else:
        given[1] = [
            b & ~exponents | a & exponents if lane % 2 else b
            for lane, (a, b) in enumerate(zip(*given, strict=True))
        ]
    return given


@pytest.mark.parametrize(("name", "kind", "mode"), CASES)
def test_rounds_the_exact_result_once(name: str, kind: str, mode: str) -> None:
    count, exact = OPERATIONS[name]

    @quickly
    @given(floats(kind))
    def check(bits: list[int]) -> None:
        operands = _neighbours(bits, kind, count)
        dtype = f"u{ {'f16': 2, 'bf16': 2, 'f32': 4, 'f64': 8}[kind] }"
        opcode = f"{name}.{mode}.{kind}"
        sources = ", ".join(f"%i{number}" for number in range(count))
        lanes = map_lanes(f"{opcode} %o, {sources};", [np.array(o, dtype) for o in operands], dtype)
        for got, *given_bits in zip(lanes.tolist(), *operands, strict=True):
            values = [decode(each, kind) for each in given_bits]
            if not all(map(math.isfinite, values)) or (name == "div" and values[1] == 0):
                continue
            expected = round_exactly(exact(*map(Fraction, values)), kind, mode)
            assert decode(got, kind) == expected, (opcode, list(map(hex, given_bits)), hex(got))

    check()


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_square_root_in_every_mode(kind: str, mode: str) -> None:
    rng = np.random.default_rng(3)
    values = np.exp2(rng.uniform(-120, 120, 500)).astype(
        kind.replace("f32", "f4").replace("f64", "f8")
    )
    got = map_lanes(f"sqrt.{mode}.{kind} %o, %i0;", [values], values.dtype)
    for value, root in zip(values, got, strict=True):
        below, above = (
            np.nextafter(root, root.dtype.type(0)),
            np.nextafter(root, root.dtype.type(np.inf)),
        )
        square = Fraction(float(value))
        if mode in ("rz", "rm"):
            assert Fraction(float(root)) ** 2 <= square < Fraction(float(above)) ** 2
        elif mode == "rp":
            assert Fraction(float(below)) ** 2 < square <= Fraction(float(root)) ** 2
        else:
            half_down = (Fraction(float(below)) + Fraction(float(root))) / 2
            half_up = (Fraction(float(root)) + Fraction(float(above))) / 2
            assert half_down**2 <= square <= half_up**2


@pytest.mark.parametrize(
    ("opcode", "reference", "low", "high", "relative", "absolute"),
    [  # error bounds of the PTX ISA, chapter 9.7.3
        ("rcp.approx.f32", lambda a: 1 / a, 0.01, 1e4, 2.0**-23, 0),
        ("sqrt.approx.f32", math.sqrt, 0.01, 1e4, 2.0**-23, 0),
        ("rsqrt.approx.f32", lambda a: 1 / math.sqrt(a), 0.01, 1e4, 2.0**-22.9, 0),
        ("sin.approx.f32", math.sin, -6.28, 6.28, 0, 2.0**-20.5),
        ("cos.approx.f32", math.cos, -6.28, 6.28, 0, 2.0**-20.5),
        ("lg2.approx.f32", math.log2, 0.01, 1e4, 0, 2.0**-20),
        ("ex2.approx.f32", lambda a: 2.0**a, -20, 20, 2.0**-22, 0),
        ("tanh.approx.f32", math.tanh, -5, 5, 2.0**-11, 0),
        ("rcp.approx.ftz.f64", lambda a: 1 / a, 0.01, 1e4, 2.0**-20, 0),
        ("rsqrt.approx.f64", lambda a: 1 / math.sqrt(a), 0.01, 1e4, 1e-15, 0),
    ],
)
def test_approximations_keep_their_bounds(
    opcode: str,
    reference: Callable[[float], float],
    low: float,
    high: float,
    relative: float,
    absolute: float,
) -> None:
    dtype = "f4" if opcode.endswith("f32") else "f8"
    values = np.random.default_rng(1).uniform(low, high, 2000).astype(dtype)
    got = map_lanes(f"{opcode} %o, %i0;", [values], dtype)
    expected = np.array([reference(float(each)) for each in values])
    assert (np.abs(got - expected) <= absolute + relative * np.abs(expected)).all()


def test_approximate_division_by_a_huge_divisor_is_zero() -> None:
    values = [np.array([1.0, np.inf], "f4"), np.array([3e38, 3e38], "f4")]
    got = map_lanes("div.approx.f32 %o, %i0, %i1;", values, "f4")
    assert got[0] == 0
    assert np.isnan(got[1])


def test_packed_float32_is_two_float32() -> None:
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(1000).astype("f4") for _ in range(3))
    wide = [each.view("u8") for each in (a, b, c)]
    got = map_lanes("fma.rn.f32x2 %o, %i0, %i1, %i2;", wide, "u8").view("f4")
    assert np.array_equal(got, map_lanes("fma.rn.f32 %o, %i0, %i1, %i2;", [a, b, c], "f4"))
    got = map_lanes("add.rn.f32x2 %o, %i0, %i1;", wide[:2], "u8").view("f4")
    assert np.array_equal(got, a + b)


def _signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_OPERATIONS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "div": _truncated,
    "rem": lambda a, b: a - b * _truncated(a, b),
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_integers_agree_with_python(kind: str) -> None:
    bits = int(kind[1:])
    dtype = np.dtype(f"u{bits // 8}")

    @quickly
    @given(
        st.lists(st.tuples(st.integers(0, 2**bits - 1), st.integers(1, 2**bits - 1)), min_size=64)
    )
    def check(pairs: list[tuple[int, int]]) -> None:
        a, b = (np.array(each, dtype) for each in zip(*pairs, strict=True))
        seen = [
            tuple(_signed(each, bits) if kind[0] == "s" else each for each in pair)
            for pair in pairs
        ]
        operations = dict(INTEGER_OPERATIONS)
        operations["mul.hi"] = lambda x, y: x * y >> bits
        for name, function in operations.items():
            got = map_lanes(f"{name}.{kind} %o, %i0, %i1;", [a, b], dtype)
            expected = [function(*pair) % 2**bits for pair in seen]
            assert got.tolist() == expected, name

    check()


@quickly
@given(st.lists(st.integers(0, 2**64 - 1), min_size=64))
def test_bit_instructions_agree_with_python(values: list[int]) -> None:
    wide = np.array(values, "u8")
    narrow = wide.astype("u4")
    for bits, lanes in ((32, narrow), (64, wide)):
        numbers = lanes.tolist()
        text = [format(each, f"0{bits}b") for each in numbers]
        popc = map_lanes(f"popc.b{bits} %o, %i0;", [lanes], "u4")
        assert popc.tolist() == [each.count("1") for each in text]
        clz = map_lanes(f"clz.b{bits} %o, %i0;", [lanes], "u4")
        assert clz.tolist() == [len(each) - len(each.lstrip("0")) for each in text]
        brev = map_lanes(f"brev.b{bits} %o, %i0;", [lanes], lanes.dtype)
        assert brev.tolist() == [int(each[::-1], 2) for each in text]
        place = map_lanes(f"bfind.u{bits} %o, %i0;", [lanes], "u4")
        assert place.tolist() == [(each.bit_length() - 1) % 2**32 for each in numbers]
        for amount in (0, 1, bits - 1, bits, 200):
            shifted = map_lanes(f"shl.b{bits} %o, %i0, {amount};", [lanes], lanes.dtype)
            assert shifted.tolist() == [(each << amount) % 2**bits for each in numbers]
            shifted = map_lanes(f"shr.s{bits} %o, %i0, {amount};", [lanes], lanes.dtype)
            expected = [(_signed(each, bits) >> amount) % 2**bits for each in numbers]
            assert shifted.tolist() == expected


@quickly
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=64))
def test_carry_chains_add_and_multiply_wide_numbers(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(each, "u8") for each in zip(*pairs, strict=True))
    split = ".reg .b32 %a0, %a1, %b0, %b1, %r<4>; "
    split += "mov.b64 {%a0, %a1}, %i0; mov.b64 {%b0, %b1}, %i1; "
    total = split + (
        "add.cc.u32 %r0, %a0, %b0; addc.cc.u32 %r1, %a1, %b1; addc.u32 %r2, 0, 0;"
        "mov.b64 %o, {%r1, %r2};"
    )
    assert map_lanes(total, [a, b], "u8").tolist() == [(x + y) >> 32 for x, y in pairs]
    difference = split + (
        "sub.cc.u32 %r0, %a0, %b0; subc.cc.u32 %r1, %a1, %b1; mov.b64 %o, {%r0, %r1};"
    )
    assert map_lanes(difference, [a, b], "u8").tolist() == [(x - y) % 2**64 for x, y in pairs]
    product = split + (
        "mul.lo.u32 %r0, %a0, %b0; mul.hi.u32 %r1, %a0, %b0;"
        "mad.lo.cc.u32 %r1, %a0, %b1, %r1; madc.hi.u32 %r2, %a0, %b1, 0;"
        "mad.lo.cc.u32 %r1, %a1, %b0, %r1; madc.hi.cc.u32 %r2, %a1, %b0, %r2;"
        "addc.u32 %r3, 0, 0; mad.lo.cc.u32 %r2, %a1, %b1, %r2; madc.hi.u32 %r3, %a1, %b1, %r3;"
        "mov.b64 %o, {%r2, %r3};"
    )
    assert map_lanes(product, [a, b], "u8").tolist() == [x * y >> 64 for x, y in pairs]


@quickly
@given(st.lists(st.floats(width=32, allow_nan=True), min_size=64))
def test_float_to_integer_clamps(values: list[float]) -> None:
    lanes = np.array(values, "f4")
    for kind, low, high in (
        ("s32", -(2**31), 2**31 - 1),
        ("u32", 0, 2**32 - 1),
        ("s64", -(2**63), 2**63 - 1),
        ("u64", 0, 2**64 - 1),
    ):
        bits = int(kind[1:])
        dtype = f"{'i' if kind[0] == 's' else 'u'}{bits // 8}"
        for mode, function in (
            ("rzi", math.trunc),
            ("rni", round),
            ("rmi", math.floor),
            ("rpi", math.ceil),
        ):
            got = map_lanes(f"cvt.{mode}.{kind}.f32 %o, %i0;", [lanes], dtype)
            for value, result in zip(lanes.tolist(), got.tolist(), strict=True):
                if math.isnan(value):
                    assert result % 2**bits == (0 if bits == 32 else 2**63)
                elif math.isinf(value):
                    assert result == (high if value > 0 else low)
                else:
                    assert result == min(max(function(value), low), high)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_wide_integers_to_floats_round_once(mode: str) -> None:
    @quickly
    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=64))
    def check(values: list[int]) -> None:
        lanes = np.array(values, "i8")
        for kind, dtype in (("f32", "f4"), ("f64", "f8"), ("f16", "f2")):
            got = map_lanes(f"cvt.{mode}.{kind}.s64 %o, %i0;", [lanes], dtype)
            expected = [round_exactly(Fraction(each), kind, mode) for each in values]
            assert got.tolist() == [float(each) for each in expected]

    check()


def test_minimum_and_maximum_order_zeros_and_skip_nans() -> None:
    a = np.array([0.0, -0.0, np.nan, 1.0, np.nan], "f4")
    b = np.array([-0.0, 0.0, 1.0, np.nan, np.nan], "f4")
    least = map_lanes("min.f32 %o, %i0, %i1;", [a, b], "u4")
    assert [hex(each) for each in least] == [
        "0x80000000", "0x80000000", "0x3f800000", "0x3f800000", "0x7fffffff",
    ]  # fmt: skip
    most = map_lanes("max.NaN.f32 %o, %i0, %i1;", [a, b], "u4")
    assert [hex(each) for each in most] == ["0x0", "0x0"] + ["0x7fffffff"] * 3


def test_instructions_with_constant_operands_only() -> None:
    got = map_lanes("fma.rn.f32 %o, 0f3F800000, 0f40000000, 0f40400000;", [np.zeros(32)], "f4")
    assert (got == 5).all()
    got = map_lanes("div.s32 %o, 7, 0;", [np.zeros(32)], "i4")
    assert (got == -1).all()


def test_a_product_beyond_the_largest_double_is_still_less_than_infinity() -> None:
    """`fma` rounds once (IEEE 754-2019, 5.4.1): a finite product takes nothing from an infinity."""
    largest, inf = np.finfo("f8").max, np.inf
    inputs = [np.array(v) for v in ([largest, -largest, 1.0], [2.0, 2.0, 2.0], [-inf, inf, -inf])]
    got = map_lanes("fma.rn.f64 %o, %i0, %i1, %i2;", inputs, "f8")
    assert got.tolist() == [-inf, inf, -inf]
