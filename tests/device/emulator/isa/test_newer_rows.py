"""Rows that were not recorded on hardware, against Python's integers and other libraries."""

import ml_dtypes
import numpy as np
import pytest
from ptx import map_lanes

RNG = np.random.default_rng(11)
WORDS = RNG.integers(0, 2**32, 512).astype("u4")
OTHERS = RNG.integers(0, 2**32, 512).astype("u4")


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_bmsk_makes_a_run_of_ones(mode: str) -> None:
    start, width = (RNG.integers(0, 40, 512).astype("u4") for _ in range(2))

    found = map_lanes(f"bmsk.{mode}.b32 %o, %i0, %i1;", [start, width], "u4")

    def mask(at: int, count: int) -> int:
        at, count = (at % 32, count % 32) if mode == "wrap" else (min(at, 32), min(count, 32))
        return ((1 << count) - 1 << at) % 2**32

    assert found.tolist() == [mask(int(a), int(b)) for a, b in zip(start, width, strict=True)]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_szext_extends_low_bits(mode: str) -> None:
    count = RNG.integers(0, 40, 512).astype("u4")

    signed = map_lanes(f"szext.{mode}.s32 %o, %i0, %i1;", [WORDS, count], "i4")
    unsigned = map_lanes(f"szext.{mode}.u32 %o, %i0, %i1;", [WORDS, count], "u4")

    for word, number, with_sign, without in zip(WORDS, count, signed, unsigned, strict=True):
        bits = int(number) % 32 if mode == "wrap" else min(int(number), 32)
        low = int(word) % 2**bits
        assert without == low
        assert with_sign == (low - 2**bits if bits and low >> (bits - 1) else low)


def test_integers_are_clamped_and_packed() -> None:
    values = [np.array(each, "i4") for each in ([300, -5, 7, 2**31 - 1], [-300, 200, -1, 1])]
    third = np.array([0x11223344, 0xAABBCCDD, 0, 0xFFFFFFFF], "u4")

    def packed(kind: str, *given: np.ndarray) -> list[str]:
        names = ", ".join(f"%i{number}" for number in range(len(given)))
        found = map_lanes(f"cvt.pack.sat.{kind} %o, {names};", list(given), "u4")
        return [f"{each:08x}" for each in found.tolist()]

    assert packed("s16.s32", *values) == ["012cfed4", "fffb00c8", "0007ffff", "7fff0001"]
    assert packed("u8.s32.b32", *values, third) == ["3344ff00", "ccdd00c8", "00000700", "ffffff01"]
    assert packed("s8.s32.b32", *values, third) == ["33447f80", "ccddfb7f", "000007ff", "ffff7f01"]
    assert packed("s4.s32.b32", *values, third)[0] == "22334478"
    assert packed("u2.s32.b32", *values, third)[1] == "abbccdd3"


def test_halves_are_subtracted_without_sign() -> None:
    halves = [each.view("u2").reshape(-1, 2).astype(int) for each in (WORDS, OTHERS)]
    distance = np.abs(halves[0] - halves[1])

    plain = map_lanes("vabsdiff2.u32.u32.u32 %o, %i0, %i1, 0;", [WORDS, OTHERS], "u4")
    summed = map_lanes("vabsdiff2.u32.u32.u32.add %o, %i0, %i1, 9;", [WORDS, OTHERS], "u4")

    assert plain.tolist() == (distance[:, 0] + (distance[:, 1] << 16)).tolist()
    assert summed.tolist() == (distance.sum(axis=1) + 9).tolist()


@pytest.mark.parametrize(("opcode", "extreme"), [("min", np.minimum), ("max", np.maximum)])
def test_relu_of_minimum_and_maximum(opcode: str, extreme: np.ufunc) -> None:
    whole = map_lanes(f"{opcode}.relu.s32 %o, %i0, %i1;", [WORDS, OTHERS], "i4")
    halves = map_lanes(f"{opcode}.s16x2.relu %o, %i0, %i1;", [WORDS, OTHERS], "u4")

    assert np.array_equal(whole, np.maximum(extreme(WORDS.view("i4"), OTHERS.view("i4")), 0))
    expected = np.maximum(extreme(WORDS.view("i2"), OTHERS.view("i2")), 0)
    assert np.array_equal(halves.view("i2"), expected)


def test_a_subtraction_leaves_the_carry_of_an_adder() -> None:
    # A 128-bit division, as NVIDIA's compiler makes it, asks by addc whether nothing was borrowed.
    lines = "sub.cc.u32 %t0, %i0, %i1; addc.u32 %o, 0, 0;"
    other = np.where(RNG.integers(0, 2, 512), OTHERS, WORDS)

    assert np.array_equal(map_lanes(lines, [WORDS, other], "u4"), other <= WORDS)


@pytest.mark.parametrize(
    ("mode", "rounded"), [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)]
)
def test_bfloat16_is_rounded_to_whole_numbers(mode: str, rounded: np.ufunc) -> None:
    values = (RNG.uniform(-40, 40, 512)).astype(ml_dtypes.bfloat16)

    found = map_lanes(f"cvt.{mode}.bf16.bf16 %o, %i0;", [values.view("u2")], "u2")

    expected = rounded(values.astype("f4")).astype(ml_dtypes.bfloat16)
    assert np.array_equal(found, expected.view("u2"))


FORMATS = [("e4m3", ml_dtypes.float8_e4m3fn, 448.0), ("e5m2", ml_dtypes.float8_e5m2, 57344.0)]


@pytest.mark.parametrize(("name", "kind", "largest"), FORMATS)
def test_eight_bit_floats_are_rounded_and_clamped(name: str, kind: type, largest: float) -> None:
    exact = np.arange(256, dtype="u1").view(kind).astype("f4")
    exact = exact[np.isfinite(exact)]
    ties = (np.sort(exact)[:-1] + np.sort(exact)[1:]) / 2
    values = np.concatenate(
        [exact, ties, np.nextafter(ties, np.float32(9e9)), [1e9, -1e9, np.inf, -np.inf, -0.0]]
    ).astype("f4")

    found = map_lanes(f"cvt.rn.satfinite.{name}x2.f32 %o, %i0, 0f40000000;", [values], "u2")

    expected = np.clip(values, -largest, largest).astype(kind)
    assert np.array_equal(found >> 8, expected.view("u1"))
    assert set((found & 255).tolist()) == {int(np.array(2, kind).view("u1"))}


@pytest.mark.parametrize(("name", "kind", "largest"), FORMATS)
def test_eight_bit_floats_convert_to_halves(name: str, kind: type, largest: float) -> None:
    codes = np.arange(256, dtype="u2")
    pairs = codes | (codes[::-1] << 8)

    found = map_lanes(f"cvt.rn.f16x2.{name}x2 %o, %i0;", [pairs], "u4").view("f2").reshape(-1, 2)

    exact = codes.astype("u1").view(kind).astype("f2")
    np.testing.assert_array_equal(found, np.stack([exact, exact[::-1]], axis=1))


@pytest.mark.parametrize(("narrow", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_halves_are_widened_before_they_are_added(narrow: str, dtype: type) -> None:
    halves = [RNG.standard_normal(512).astype(dtype) for _ in range(2)]
    wide = RNG.standard_normal(512).astype("f4") / 1000
    first, second = (half.view("u2") for half in halves)

    total = map_lanes(f"add.f32.{narrow} %o, %i0, %i1;", [first, wide], "f4")
    difference = map_lanes(f"sub.rn.f32.{narrow} %o, %i0, %i1;", [first, wide], "f4")
    fused = map_lanes(f"fma.rn.f32.{narrow} %o, %i0, %i1, %i2;", [first, second, wide], "f4")
    capped = map_lanes(f"add.sat.f32.{narrow} %o, %i0, %i1;", [first, wide], "f4")

    a, b = (half.astype("f4") for half in halves)
    assert np.array_equal(total, a + wide)
    assert np.array_equal(difference, a - wide)
    assert np.array_equal(fused, (a.astype("f8") * b + wide).astype("f4"))
    assert np.array_equal(capped, np.clip(a + wide, 0, 1))
