"""Matrices from whose products one rule of summation can be told from another, as bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.tensor_sums.kernels import BITS, Kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 1
FORMATS = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "tf32": (8, 10),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
    "f32": (8, 23),
}
"""Bits of the exponent and of the fraction, by PTX's type."""
KINDS = (
    *("near", "uniform", "narrow", "cancelling", "zeros", "subnormal", "special", "large"),
    *("tiny_c", "large_c", "zero_times_large", "one_bit", "zero_times_huge", "huge_cancelling"),
)
"""What the numbers of a product are like."""
SPARSE_PAIRS = {True: (0x4, 0xE), False: (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)}
"""Four bits of metadata that PTX allows, by whether the factors are TF32."""


class Matrices(NamedTuple):
    """The words of a kernel's arguments: shape (blocks, ...), as `kernels` describes them."""

    a: NDArray[np.uint32]
    b: NDArray[np.uint32]
    c: NDArray[np.uint32]
    metadata: NDArray[np.uint32]


def matrices(kernel: Kernel) -> Matrices:
    """Draw the matrices of a kernel's blocks: as many of each kind, in the order of `KINDS`."""
    rng = np.random.default_rng([SEED, *kernel.name.encode()])
    pairs = np.array(SPARSE_PAIRS[kernel.of_a == "tf32"], np.uint32)
    found = []
    for kind in KINDS:
        for _ in range(blocks_per_kind(kernel)):
            a, b = _factors(rng, kind, kernel)
            c = _bits(rng, kind, kernel.total, (kernel.rows, kernel.columns), "c")
            chosen = rng.choice(pairs, (kernel.steps, 32, 8)) << (4 * np.arange(8, dtype=np.uint32))
            words = (_words(a, kernel.of_a), _words(b, kernel.of_b), _words(c, kernel.total))
            found.append((*words, chosen.sum(-1).astype(np.uint32)))
    return Matrices(*(np.stack(each) for each in zip(*found, strict=True)))


def blocks_per_kind(kernel: Kernel) -> int:
    """Blocks that compute products of one kind; large kernels have fewer."""
    few = kernel.steps > 1 or kernel.columns == 128
    if kernel.instruction == "wgmma":
        return 1 if few else 2
    return 4 if few else 12


def _factors(
    rng: np.random.Generator, kind: str, kernel: Kernel
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """A and B; where terms cancel, their second halves repeat the first ones, A's negated."""
    of_a, of_b, depth = kernel.of_a, kernel.of_b, kernel.stored_depth
    shape = (kernel.steps, kernel.columns, kernel.depth)
    a = _bits(rng, kind, of_a, (kernel.steps, kernel.rows, depth), "a")
    b = _bits(rng, kind, of_b, shape, "b")
    if "cancelling" in kind and kernel.instruction != "sp":
        order = rng.permutation(depth // 2)
        sign = 31 if of_a == "tf32" else sum(FORMATS[of_a])
        a[..., depth // 2 :] = a[..., order] ^ np.uint32(1 << sign)
        b[..., depth // 2 :] = b[..., order]
        others = rng.random(b.shape) < (0.1 if kind == "cancelling" else 0.02)
        b = np.where(others, _bits(rng, kind, of_b, shape, "b"), b)
    return a, b


def _bits(
    rng: np.random.Generator, kind: str, number: str, shape: tuple[int, ...], place: str
) -> NDArray[np.uint32]:
    """Numbers of a kind for the matrix `a`, `b` or `c`, in the low bits of words."""
    exponent_bits, fraction_bits = FORMATS[number]
    top = (1 << exponent_bits) - 1
    sign_bit, exponent_bit = np.uint64(exponent_bits + fraction_bits), np.uint64(fraction_bits)
    sign = rng.integers(0, 2, shape).astype(np.uint64) << sign_bit
    fraction = rng.integers(0, 1 << fraction_bits, shape).astype(np.uint64)
    low, high = _exponents(kind, number, place)
    exponent = rng.integers(low, high + 1, shape).astype(np.uint64)
    if number == "e4m3":  # whose NaN has the largest exponent, and all bits of the fraction
        fraction = np.where((exponent == top) & (fraction == 7), 6, fraction)
    if kind == "one_bit":
        fraction = np.where(rng.random(shape) < 0.5, 0, fraction & np.uint64(1))
    bits = sign | exponent << exponent_bit | fraction
    if kind in ("zeros", "zero_times_large", "zero_times_huge"):
        share = {"a": 0.8, "b": 0.0, "c": 0.6}[place]
        if (kind, place) in (("zeros", "b"), ("zero_times_huge", "a")):
            share = {"a": 0.9, "b": 0.3}[place]
        bits = np.where(rng.random(shape) < share, sign, bits)
    if kind == "special":
        infinite = rng.random(shape) < 0.7
        special = (top << fraction_bits) | np.where(infinite, 0, fraction)
        if number == "e4m3":
            special = np.full(shape, 0x7F, np.uint64)
        rare = rng.random(shape) < (0.05 if place == "c" else 0.01)
        bits = np.where(rare, sign | special.astype(np.uint64), bits)
    if number == "tf32":  # the hardware ignores the low 13 bits of a word
        bits = bits << np.uint64(13) | rng.integers(0, 1 << 13, shape).astype(np.uint64)
    return bits.astype(np.uint32)


def _exponents(kind: str, number: str, place: str) -> tuple[int, int]:
    """The least and the largest biased exponent of a kind's numbers."""
    exponent_bits = FORMATS[number][0]
    wide = exponent_bits == 8
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    last = top if number == "e4m3" else top - 1  # of finite numbers
    addend = place == "c"
    match kind:
        case "uniform" | "cancelling":
            return (bias - 30, bias + 30) if addend and number == "f32" else (0, last)
        case "narrow":
            return bias, bias
        case "subnormal":
            return (bias - 70, bias - 58) if wide and not addend else (0, 1)
        case "large" if wide:
            return (last - 1, last) if addend else (bias + 61, bias + 64)
        case "large":
            return last - 2, last
        case "tiny_c" if addend:
            return (bias - 40, bias - 10) if wide else (0, bias - 8)
        case "large_c" if addend:
            return (bias + 4, bias + 34) if wide else (bias + 5, last)
        case "zero_times_large" if wide:
            spans = {"a": (-20, -10), "b": (-30, 100), "c": (-40, 0)}
            return bias + spans[place][0], bias + spans[place][1]
        case "zero_times_large":
            return {"a": (0, 3), "b": (max(last - 4, 1), last), "c": (0, bias)}[place]
        case "zero_times_huge" if wide and not addend:
            return (bias - 20, bias - 10) if place == "a" else (bias - 110, bias + 120)
        case "zero_times_huge":
            return {"a": (bias - 3, bias), "b": (1, last), "c": (0, 3)}[place]
        case "huge_cancelling":
            return (bias + 62, bias + 66) if wide and not addend else (last - 2, last)
        case _:
            return max(bias - 6, 1), min(bias + 6, last)


def _words(bits: NDArray[np.uint32], number: str) -> NDArray[np.uint32]:
    """Pack numbers along rows into words."""
    kind = {8: np.uint8, 16: np.uint16, 32: np.uint32}[BITS[number]]
    return np.ascontiguousarray(bits.astype(kind)).view(np.uint32)
