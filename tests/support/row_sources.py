"""Sources for rows of the instruction table: values at the borders of their types, and others."""

from __future__ import annotations

from typing import Any

import numpy as np
from lowered_rows import lane_dtype
from numpy.typing import NDArray

from memlab.device.emulator.isa.values import element_type

Array = NDArray[Any]

_SMALL_INTEGERS = [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256]
_FRACTION_BITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def special_bits(ptx_type: str) -> list[int]:
    """The bits of values of a type at which a mistake is likely."""
    half = ptx_type.removesuffix("x2")
    if half != ptx_type:
        parts = special_bits(half)
        return [low | high << 16 for low, high in zip(parts, parts[1:] + parts[:1], strict=True)]
    if ptx_type in _FRACTION_BITS:
        bits, fraction = 8 * lane_dtype(ptx_type).itemsize, _FRACTION_BITS[ptx_type]
        # Zero, the least subnormals, about the least normal, 1, 2.5, about infinity, and NaNs.
        unit, infinity = 1 << fraction, (1 << (bits - 1)) - (1 << fraction)
        one = infinity // 2 // unit * unit
        sizes = [0, 1, 2, unit - 1, unit, unit + 1, one - 1, one, one + 1, one + unit + unit // 4]
        sizes += [infinity - 1, infinity, infinity + 1, infinity + unit // 2, infinity + unit - 1]
        return sizes + [size | 1 << (bits - 1) for size in sizes]
    bits = element_type(ptx_type).bits
    if bits == 1:
        return [0, 1]
    ones = (1 << bits) - 1
    numbers = [*_SMALL_INTEGERS, ones // 3, ones // 5, ones >> 1, (ones >> 1) - 1]
    numbers += [(1 << (bits // 2)) + step for step in (-1, 0, 1)]
    numbers += [1 << (bits - 2), (1 << (bits - 1)) + 1]
    if bits == 64:  # where the windows of state spaces begin and end
        numbers += [(place << 40) - end for place in range(0x7A, 0x81) for end in (0, 1)]
    return sorted({n & ones for number in numbers for n in (number, ~number, -number)})


def random_bits(ptx_type: str, count: int, rng: np.random.Generator) -> Array:
    """Bits of values of a type: random leading ones, then few that a rounding could depend on.

    The exponents of floats are about those of all other types' ranges.
    """
    dtype = lane_dtype(ptx_type)
    words = np.dtype(f"u{min(dtype.itemsize, 8)}")
    size, one = 8 * words.itemsize, words.type(1)
    lanes = count * (dtype.itemsize // words.itemsize)
    bits = np.frombuffer(rng.bytes(lanes * words.itemsize), words)
    cut = rng.integers(1, size, lanes).astype(words)  # so many bits are one of the endings
    half, whole = one << (cut - one), (one << cut) - one
    endings = [np.zeros(lanes, words), np.ones(lanes, words), half - one, half, half + one, whole]
    bits = bits & ~whole | np.choose(rng.integers(0, 6, lanes), endings) & whole
    fraction = _FRACTION_BITS.get(ptx_type)
    if fraction:
        bias = (1 << (size - fraction - 2)) - 1
        reach = np.minimum(rng.choice([3, 20, 40, 70, 160, 1100], lanes), bias)
        exponent = (bias + rng.integers(-reach, reach + 1)).astype(words)
        mask = words.type((1 << (size - 1)) - (1 << fraction))
        bits = bits & ~mask | exponent << words.type(fraction)
    return bits.view(dtype)


def make_sources(types: tuple[str, ...], seed: int = 0) -> list[Array]:
    """Arrays of the types of a row's sources: special values with one another, and random ones.

    Args:
        types: PTX types; of two or fewer sources, special values meet in every pair.
        seed: Of the random numbers.
    """
    rng = np.random.default_rng(seed)
    special = [_from_bits(special_bits(kind), kind) for kind in types]
    if len(types) <= 2:
        chosen, random = [part.ravel() for part in np.meshgrid(*special)], 4096 >> 2 * len(types)
    else:
        chosen, random = [rng.choice(values, 4096) for values in special], 1024
    random += -(len(chosen[0]) + random) % 32
    sources = []
    for values, some, kind in zip(chosen, special, types, strict=True):
        if lane_dtype(kind) == np.bool_:
            others = rng.integers(0, 2, random).astype(bool)
        else:
            others = random_bits(kind, random, rng)
            others = np.where(rng.integers(0, 4, random) == 0, rng.choice(some, random), others)
        sources.append(np.concatenate([values, others]))
    return sources


def _from_bits(bits: list[int], kind: str) -> Array:
    dtype = lane_dtype(kind)
    if dtype == np.bool_:
        return np.array([False, True])
    raw = b"".join(number.to_bytes(dtype.itemsize, "little") for number in bits)
    return np.frombuffer(raw, dtype)


def assert_same(
    opcode: str,
    results: list[Array],
    expected: Any,
    sources: list[Array],
    any_nan: bool = True,
) -> None:
    """Check that results equal those expected, bit for bit.

    Args:
        opcode: The row.
        results: Its results.
        expected: Those expected: an array or a tuple of arrays.
        sources: Its sources.
        any_nan: Whether any NaN equals any other.

    Raises:
        AssertionError: They do not; it names the first lane that differs.
    """
    for number, result in enumerate(results):
        wanted = expected[number] if isinstance(expected, tuple) else expected
        wanted = np.broadcast_to(np.asarray(wanted), result.shape)
        assert wanted.dtype.itemsize == result.dtype.itemsize, f"{opcode}: {wanted.dtype}"
        bits = np.dtype((np.void, result.dtype.itemsize))
        same = np.ascontiguousarray(wanted).view(bits) == result.view(bits)
        if result.dtype.kind == "f" and any_nan:
            same |= np.isnan(result) & np.isnan(wanted)
        if not same.all():
            lane = int(np.argmin(same))
            values = ", ".join(repr(source[lane]) for source in sources)
            raise AssertionError(f"{opcode}({values}) is {result[lane]!r}, not {wanted[lane]!r}")
