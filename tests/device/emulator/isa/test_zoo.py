"""What students' kernels call, compiled by NVRTC for several architectures, against Python."""

import ctypes
import math
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from paths import DATA
from ptx import run

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit

SOURCE = (DATA / "zoo.cu").read_text()
ARCHITECTURES = [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)]
COUNT = 256
N = np.int32(COUNT)

every_architecture = pytest.mark.parametrize(
    "architecture", ARCHITECTURES, ids=lambda each: "sm_" + "".join(map(str, each))
)


@cache
def compiled(architecture: tuple[int, int], *options: str) -> str:
    return compile_unit(TranslationUnit(SOURCE, "zoo.cu", architecture, options=options)).ptx


def launch(text: str, entry: str, arrays: dict[str, Any], scalars: Any = None, **more: Any) -> Any:
    scalars = [N] if scalars is None else scalars
    return run(text, arrays, scalars, entry=entry, grid=(4, 1, 1), block=(64, 1, 1), **more)


def f32(value: float) -> float:
    return float(np.float32(value))


def round_half_away(value: float) -> float:
    return math.copysign(math.floor(abs(value) + 0.5), value)


def toward(value: float, exact: float, up: bool) -> float:
    """The float32 next to an exact value on one side."""
    nearest = np.float32(value)
    if (float(nearest) < exact) == up and float(nearest) != exact:
        nearest = np.nextafter(nearest, np.float32(math.inf if up else -math.inf))
    return float(nearest)


FLOAT_REFERENCE = [
    lambda x, y: math.sin(x), lambda x, y: math.cos(x), lambda x, y: math.tan(x),
    lambda x, y: math.exp(y), lambda x, y: 2.0**y, lambda x, y: math.expm1(y),
    lambda x, y: math.log(abs(x)), lambda x, y: math.log2(abs(x)),
    lambda x, y: math.log1p(abs(x)), lambda x, y: abs(x) ** y,
    lambda x, y: math.sqrt(abs(x)), lambda x, y: 1 / math.sqrt(abs(x)),
    lambda x, y: math.copysign(abs(x) ** (1 / 3), x), math.hypot,
    lambda x, y: math.erf(y), lambda x, y: math.tanh(y), math.atan2, math.fmod,
    lambda x, y: math.floor(x), lambda x, y: math.ceil(x), lambda x, y: math.trunc(x),
    lambda x, y: round_half_away(x), lambda x, y: round(x), min, max,
    lambda x, y: x * y + 1.5, lambda x, y: x / y, math.copysign,
]  # fmt: skip
"""The first 28 rows of both `float_math` and `double_math`."""


@every_architecture
def test_float_math(architecture: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    x = (rng.uniform(0.01, 100, COUNT) * rng.choice([-1, 1], COUNT)).astype("f4")
    y = (rng.uniform(0.01, 4, COUNT) * rng.choice([-1, 1], COUNT)).astype("f4")
    reference = [
        *FLOAT_REFERENCE,
        lambda x, y: math.exp(y), lambda x, y: math.log(abs(x)), lambda x, y: math.sin(y),
        lambda x, y: math.cos(y), lambda x, y: x / y, lambda x, y: math.sqrt(abs(x)),
        lambda x, y: 1 / x, lambda x, y: min(max(y, 0), 1),
        lambda x, y: toward(x + y, x + y, x + y < 0), lambda x, y: toward(x * y, x * y, True),
        lambda x, y: toward(x * y + 1, x * y + 1, False),
        lambda x, y: toward(x / y, x / y, x / y < 0),
        lambda x, y: toward(math.sqrt(abs(x)), math.sqrt(abs(x)), True),
        lambda x, y: math.lgamma(abs(y) + 1), lambda x, y: math.asin(f32(x / 200)),
        lambda x, y: x * 8, lambda x, y: 2.0 if abs(x) > 3.402823466e38 / f32(1e38) else 3.0,
        lambda x, y: math.sinh(y),
        lambda x, y: 0.5 * math.erfc(-y / math.sqrt(2)), lambda x, y: 1 / x,
    ]  # fmt: skip
    exact = {*range(17, 28), 34, *range(35, 41), 43, 44, 47}
    out = np.zeros((len(reference), COUNT), "f4")
    done = launch(compiled(architecture), "float_math", {"a": x, "b": y, "out": out})
    for row, function in enumerate(reference):
        expected = np.array([function(float(a), float(b)) for a, b in zip(x, y, strict=True)])
        if row in exact:
            assert np.array_equal(done["out"][row], expected.astype("f4")), row
        else:  # a few units in the last place, the intrinsics' absolute errors, lgamma near 0
            assert np.allclose(done["out"][row], expected, rtol=4e-6, atol=1e-6), row


@every_architecture
def test_double_math(architecture: tuple[int, int]) -> None:
    rng = np.random.default_rng(6)
    x = rng.uniform(0.01, 100, COUNT) * rng.choice([-1, 1], COUNT)
    y = rng.uniform(0.01, 4, COUNT) * rng.choice([-1, 1], COUNT)
    reference = [
        *FLOAT_REFERENCE,
        lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x * y + 1.0, lambda x, y: x / y,
        lambda x, y: math.sqrt(abs(x)), lambda x, y: 1 / x, lambda x, y: f32(x),
        lambda x, y: math.trunc(x), lambda x, y: math.lgamma(abs(y) + 1),
        lambda x, y: math.asin(x / 200), lambda x, y: round(x), lambda x, y: math.trunc(abs(x)),
    ]  # fmt: skip
    exact = {*range(17, 25), 26, 27, 33, 34, 35, 38, 39}
    out = np.zeros((len(reference), COUNT))
    done = launch(compiled(architecture), "double_math", {"a": x, "b": y, "out": out})
    for row, function in enumerate(reference):
        expected = np.array([function(float(a), float(b)) for a, b in zip(x, y, strict=True)])
        if row in exact:
            assert np.array_equal(done["out"][row], expected), row
        else:
            assert np.allclose(done["out"][row], expected, rtol=3e-15, atol=1e-15), row


def test_trigonometry_of_huge_arguments_reduces_them_exactly() -> None:
    x = np.full(COUNT, 1e22)  # known to be reduced wrongly by careless libraries
    arrays = {"a": x, "b": np.ones(COUNT), "out": np.zeros((40, COUNT))}
    done = launch(compiled((9, 0)), "double_math", arrays)
    assert done["out"][0, 0] == pytest.approx(-0.8522008497671888, rel=1e-15)


def signed(value: int, bits: int = 32) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def byte_of(value: int, place: int) -> int:
    return value >> 8 * place & 255


def signed_bytes(value: int) -> list[int]:
    return [signed(byte_of(value, place), 8) for place in range(4)]


def switched(x: int, y: int) -> int:
    number = x % 2**32 % 16
    if number > 8:
        return -y
    return [
        x + 1, y * 3, x ^ 0x55, x - y, ~y, quotient(y, 3), x * 17, int(x > y),
        (y % 2**32).bit_count(),
    ][number]  # fmt: skip


def integer_rows(x: int, y: int) -> list[int]:
    u, v = x % 2**32, y % 2**32
    product24 = signed(x % 2**24, 24) * signed(y % 2**24, 24)
    permuted = (v << 32 | u).to_bytes(8, "little")
    as_float = f32(f32(x) * f32(0.37))
    return [
        quotient(x, y), x - y * quotient(x, y), u // v, u % v, quotient(x, 7), x * y >> 32,
        u * v >> 32, product24, abs(x - y) + v, u.bit_count(), 32 - u.bit_length(),
        (x & -x).bit_length(), int(f"{u:032b}"[::-1], 2),
        int.from_bytes(bytes(permuted[i] for i in (5, 1, 7, 3)), "little"),
        (v << 32 | u) << v % 32 >> 32, (v << 32 | u) >> min(v, 32), abs(x), min(x, y), max(u, v),
        x & y ^ (x | ~y), x >> v % 32, u >> v % 32, x << v % 32,
        5 + sum(a * b for a, b in zip(signed_bytes(u), signed_bytes(v), strict=True)),
        x + y >> 1, signed(u, 16) + signed(v, 8), x if (x > y and x != 0) or y == 3 else y,
        x * y + 3, sum(abs(byte_of(u, i) - byte_of(v, i)) << 8 * i for i in range(4)),
        int(np.float32(x).view(np.int32)), math.trunc(as_float), math.ceil(as_float),
        (x == 0) + (y != 0), u >> 5 & 0x3FF, ((u | 1) & -(u | 1)).bit_length() - 1, switched(x, y),
    ]  # fmt: skip


@every_architecture
def test_integers(architecture: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    x = (rng.integers(-(2**31), 2**31, COUNT) >> rng.integers(0, 31, COUNT)).astype("i4")
    y = (rng.integers(-(2**31), 2**31, COUNT) >> rng.integers(0, 31, COUNT)).astype("i4")
    x[:4], y[y == 0] = [0, 1, 2**31 - 1, -(2**31) + 1], 3
    arrays = {"a": x, "b": y, "out": np.zeros((36, COUNT), "i4")}
    done = launch(compiled(architecture), "integers", arrays)
    expected = [integer_rows(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    for row, values in enumerate(zip(*expected, strict=True)):
        assert done["out"][row].tolist() == [signed(each) for each in values], row


def long_rows(x: int, y: int) -> list[int]:
    u, v = x % 2**64, y % 2**64
    total = (u << 64 | v) + v
    return [
        quotient(x, y), x - y * quotient(x, y), u // v, u % v, quotient(x, 10), x * y >> 64,
        u * v >> 64, u.bit_count(), 64 - u.bit_length(), (x & -x).bit_length(),
        int(f"{u:064b}"[::-1], 2), x >> v % 64, u >> v % 64, x << v % 64, abs(x), min(x, y),
        max(u, v), x * y - 1, min(int(float(x)), 2**63 - 1), min(int(np.float32(u)), 2**63 - 1),
        x * y + x >> 64, x * y + x, total >> 64,
        int(np.float64(u).view(np.int64)), 1 if x == y else 2 if x < y else 3,
    ]  # fmt: skip


@every_architecture
def test_longs(architecture: tuple[int, int]) -> None:
    rng = np.random.default_rng(8)
    x = rng.integers(-(2**63), 2**63, COUNT) >> rng.integers(0, 63, COUNT)
    y = rng.integers(-(2**63), 2**63, COUNT) >> rng.integers(0, 63, COUNT)
    y[y == 0] = 5
    arrays = {"a": x, "b": y, "out": np.zeros((25, COUNT), "i8")}
    done = launch(compiled(architecture), "longs", arrays)
    expected = [long_rows(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    for row, values in enumerate(zip(*expected, strict=True)):
        assert done["out"][row].tolist() == [signed(each, 64) for each in values], row


@every_architecture
def test_warps(architecture: tuple[int, int]) -> None:
    a = np.random.default_rng(9).integers(-5, 5, COUNT).astype("i4")
    done = launch(compiled(architecture), "warps", {"a": a, "out": np.zeros((12, COUNT), "i4")})
    values, rows = a.tolist(), done["out"].tolist()
    for i, x in enumerate(values):
        lane, first, block = i % 32, i - i % 32, i - i % 64
        warp, all_of_block = values[first : first + 32], values[block : block + 64]
        expected = [
            sum(warp),
            sum(warp[lane // 8 * 8 : lane // 8 * 8 + 8]),
            warp[lane - 3] if lane >= 3 else x,
            warp[lane + 3] if lane % 16 < 13 else x,
            warp[lane * 7 % 32],
            signed(sum((each > 0) << place for place, each in enumerate(warp))),
            1 + 2 * (values[0] in warp),
            16 if lane % 2 == 0 else 0,
            signed(sum((each & 3 == x & 3) << place for place, each in enumerate(warp))),
            1,
            sum(each > 0 for each in all_of_block),
            1 + 2 * (values[0] in all_of_block),
        ]
        assert [row[i] for row in rows] == expected, i


class Item(ctypes.Structure):
    _fields_ = (("weights", ctypes.c_float * 3), ("count", ctypes.c_int))


def polynomial(x: float, degree: int) -> float:
    coefficients, total = (0.5, 1.5, -2.0, 4.0), np.float32(0)
    for k in range(degree):
        if k > 3:
            return float(total * np.float32(2))
        total = np.float32(float(total) * x + coefficients[k])
    return float(total)


@every_architecture
def test_structures_calls_and_local_arrays(architecture: tuple[int, int]) -> None:
    a = np.random.default_rng(10).uniform(-2, 2, (COUNT, 4)).astype("f4")
    item = Item((0.25, -1.5, 3.0), 7)
    arrays = {"a": a, "out": np.zeros((7, COUNT), "f4")}
    done = launch(
        compiled(architecture),
        "structures",
        arrays,
        {"item": bytes(item), "n": N},
        order=("a", "item", "out", "n"),
        dynamic_shared_bytes=256,
    )
    for i in range(COUNT):
        thread, block = i % 64, i - i % 64
        x, y, z, w = map(float, a[i])
        weights = [f32(each * x) for each in item.weights]
        expected = [
            float(a[block + 63 - thread, 0]),
            f32(0.5 * float(a[block + (thread + 1) % 64, 1])),
            f32(z * ((i * 5 + COUNT) % 8)),
            f32((0.5, 1.5, -2.0, 4.0)[i % 4] + item.weights[i % 3]),
            polynomial(w, i % 7),
            f32(weights[i % 3] + item.count + int(polynomial(x, 1))),
            f32(polynomial(x, 2) + polynomial(y, 3)),
        ]
        assert done["out"][:, i].tolist() == pytest.approx(expected, rel=1e-6), i
    assert int(done["counter"].view(np.int32)[0]) == COUNT


@every_architecture
def test_atomics(architecture: tuple[int, int]) -> None:
    a = np.random.default_rng(11).integers(-50, 50, COUNT).astype("i4")
    arrays = {
        "a": a,
        "bins": np.array([0, -1000, 1000, 0, 0, -1, 0, 0, *[0] * 9], "i4"),
        "sums": np.zeros(1, "f4"),
        "wide": np.zeros(2),
        "out": np.zeros((3, COUNT), "i4"),
    }
    done = launch(compiled(architecture), "atomics", arrays)
    bins, wide = done["bins"].tolist(), done["wide"]
    assert bins[:3] == [COUNT, a.max(), a.min()]
    assert bins[3:6] == [
        np.bitwise_or.reduce(a), np.bitwise_xor.reduce(a), np.bitwise_and.reduce(a),
    ]  # fmt: skip
    assert bins[6:8] == [COUNT % 10, 42]
    assert bins[8:16] == np.bincount(a & 7, minlength=8).tolist()
    assert bins[16] == a.sum()
    assert done["sums"][0] == COUNT
    assert wide[0] == a.sum()
    assert wide.view(np.int64)[1] == a.sum()
    assert sorted(done["out"][0]) == list(range(COUNT))  # each thread found another old value
    assert sorted(done["out"][1]) == sorted(i % 10 for i in range(COUNT))
    for start, end in pairwise(range(0, COUNT + 1, 64)):
        assert (done["out"][2, start:end] == a[start:end].sum() + 64).all()


@pytest.mark.slow
@pytest.mark.parametrize("options", [("-use_fast_math",), ("-G",)])
def test_other_ways_of_compiling(options: tuple[str, ...]) -> None:
    x = np.linspace(0.5, 50, COUNT, dtype="f4")
    y = np.linspace(0.1, 3, COUNT, dtype="f4")
    architecture = (12, 0)  # NVRTC compiles __dp4a with -G from 10.0 on
    arrays = {"a": x, "b": y, "out": np.zeros((48, COUNT), "f4")}
    done = launch(compiled(architecture, *options), "float_math", arrays)
    assert np.allclose(done["out"][3], np.exp(y), rtol=1e-5)
    assert np.allclose(done["out"][26], x / y, rtol=1e-5)
    a = np.arange(COUNT, dtype="i4") - 100
    arrays = {"a": a, "out": np.zeros((12, COUNT), "i4")}
    done = launch(compiled(architecture, *options), "warps", arrays)
    assert done["out"][0].tolist() == np.repeat(a.reshape(-1, 32).sum(axis=1), 32).tolist()
