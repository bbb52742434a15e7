"""Sums of products with the bits that tensor cores keep.

A tensor core aligns the products of one sum and its addend to the largest of their exponents, drops
the bits of each that lie more than some places below that exponent, adds what is left exactly, and
rounds the sum once: towards zero to float32, to nearest to float16. Hopper keeps 25 places, and
`wgmma` of 8-bit floats 13, of which the float32 sum has 13 bits of fraction too. The exponent of a
product is the sum of the exponents of its factors, which are not normalized: significands of
products are below 4, and a subnormal factor has the exponent of the least normal number. Products
of zeros count for nothing. A sum beyond the range of its type is infinite, one that is not a number
has all bits but the sign set, and none is -0.

Turing, Ampere and Ada keep 24 places, of 8-bit floats 13, and sum the products of 16 bytes of a row
of A at once: the others are added to that sum, rounded, in a second one.

The rules and the numbers are those of Xie, Wang, Yang, Yang, "MMA-Sim: Bit-Accurate Reference Model
of Tensor Cores and Matrix Cores", 2025 (arXiv:2511.10909). An H100 agrees bit for bit
(docs/results/README.md, "Sums of the tensor cores"); the others were not measured here, and MMA-Sim
has no sparse products, of which the elements that are stored are taken to count.
"""

from __future__ import annotations

from dataclasses import dataclass

from memlab.device.emulator.isa import values
from memlab.device.emulator.isa.rounding import round_value
from memlab.device.emulator.isa.values import (
    F32,
    F64,
    S16,
    S32,
    S64,
    U32,
    U64,
    ElementType,
    Value,
    where,
)

PLACES = 25
"""Places that sums keep below the largest exponent."""
PLACES_OF_BYTES = 13
"""The same of `wgmma` of 8-bit floats, and of all products of these before Hopper."""
OLDER_PLACES = 24
"""Places of Turing, Ampere and Ada."""
OLDER_BYTES = 16
"""Bytes of a row of A whose products these add up at once."""

# Bits of the exponent and of the fraction; the fraction of tf32 includes the 13 bits ignored.
_FORMATS = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "tf32": (8, 23),
    "f32": (8, 23),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}
_TF32_SIZE = 0x7FFF_E000  # the bits of its magnitude
_E4M3_NAN = 0x7F
# In place of the exponents of zeros and of what is not finite, which sums of two can be told from.
_OF_ZERO, _OF_SPECIAL = -3000, 12000
_LEAST_OF_PRODUCT = -1000  # less than any sum of two exponents but with a zero
_FLOAT32_BITS, _FLOAT64_BITS = 23, 52  # of the fractions


def exponents_of(codes: Value, element: str) -> Value:
    """The exponents of floating-point numbers, from their bits.

    Those of zeros are far below all others, those of infinities and NaN far above.
    """
    bits = codes.bits(codes.type.unsigned)
    exponent_bits, fraction_bits = _FORMATS[element]
    largest = (1 << exponent_bits) - 1
    field = (bits >> fraction_bits) & largest
    size = bits & (_TF32_SIZE if element == "tf32" else bits.type.signed.most)
    is_special = size == _E4M3_NAN if element == "e4m3" else field == largest
    exponent = values.maximum(field, 1).to(S16) - (largest >> 1)
    exponent = where(size == 0, _OF_ZERO, exponent)
    return where(is_special, _OF_SPECIAL, exponent)


@dataclass(frozen=True)
class _Arithmetic:
    """How terms are computed.

    Attributes:
        factors: The type of the factors; their products are exact in it.
        terms: The type of terms that are cut to units.
        bias: That of the exponents of `factors`.
        fraction_bits: Those of `factors`.
        least: The least exponent that terms are aligned to.
        most: The greatest.
    """

    factors: ElementType
    terms: ElementType
    bias: int
    fraction_bits: int
    least: int
    most: int


# Sums of 16 products below 2^27 or 32 below 2^15 fit s32. What float32 loses of products below
# 2^-126 is less than a unit of the least exponent.
_FAST = _Arithmetic(F32, S32, 127, _FLOAT32_BITS, -100, 126)
_WIDE = _Arithmetic(F64, F64, 1023, _FLOAT64_BITS, -300, 300)


class AlignedSums:
    """Sums whose terms are aligned to their largest exponents, one sum per lane.

    Terms are cut to whole numbers of a unit.

    Attributes:
        is_unfit: Where the sum needs the wide arithmetic.
    """

    def __init__(self, largest: Value, places: int, wide: bool = False) -> None:
        """No terms.

        Args:
            largest: The largest exponents of the terms to come, products and addend.
            places: How many are kept below these.
            wide: Whether factors are float64, for all exponents, infinities and NaN, not float32.
        """
        of = self._of = _WIDE if wide else _FAST
        self._wide, self._places = wide, places
        exponents = values.clamp(largest, of.least, of.most)
        self.is_unfit = (largest != exponents) & (largest > _LEAST_OF_PRODUCT)
        per_unit = (of.bias + places) - exponents.to(of.factors.signed) << of.fraction_bits
        self._per_unit = per_unit.bits(of.factors)
        units = exponents.to(S64) + (_WIDE.bias - places) << _FLOAT64_BITS
        self._units = units.bits(F64)
        self._sums = Value(largest.builder, values.constant(0, of.terms, largest.lanes), of.terms)

    def add(self, *factors: Value) -> None:
        """Add the product of two factors."""
        self._sums += self._cut(factors[0] * factors[1])

    def rounded(self, addend: Value, element: str) -> Value:
        """The sums with an addend each, in PTX's type `f32` or `f16`."""
        total = (self._sums.to(F64) + self._cut(addend).to(F64)) * self._units
        kept = min(self._places, _FLOAT32_BITS)
        if element == "f16":
            result = round_value(total, element)
        elif self._wide:
            cut = round_value(total, element, "rz").bits(U32) & -(1 << _FLOAT32_BITS - kept)
            result = where(abs(total) < 2.0**128, cut.bits(F32), total.to(F32))
        else:  # normal numbers, or beyond float32
            return (total.bits(U64) & -(1 << _FLOAT64_BITS - kept)).bits(F64).to(F32)
        result = where(result == 0, 0.0, result)  # also of what is rounded to -0
        return with_one_nan(result) if self._wide else result

    def _cut(self, term: Value) -> Value:
        term = term * self._per_unit
        return term.to(S32) if self._of.terms == S32 else term.call("llvm.trunc")


def with_one_nan(value: Value) -> Value:
    """A float16 or float32 with the GPU's only NaN in place of any."""
    unsigned = value.type.unsigned
    return where(value.is_nan, unsigned.most >> 1, value.bits(unsigned)).bits(value.type)
