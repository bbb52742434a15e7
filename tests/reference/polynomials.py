"""The coefficients of `isa.elementary`, derived to 60 digits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, getcontext
from fractions import Fraction
from itertools import count

getcontext().prec = 60

_TWO = Decimal(2)
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def sine(x: Decimal) -> Decimal:
    """The sine by its series."""
    return _series(x, -x * x, 2)


def cosine(x: Decimal) -> Decimal:
    """The cosine by its series."""
    return _series(Decimal(1), -x * x, 1)


def _series(term: Decimal, factor: Decimal, first: int) -> Decimal:
    total = Decimal(0)
    for number in count(first, 2):
        if abs(term) < Decimal("1e-65"):
            return total
        total += term
        term *= factor / (number * (number + 1))
    raise AssertionError


def interpolate(
    function: Callable[[Decimal], Decimal], least: Decimal, most: Decimal, degree: int
) -> tuple[float, ...]:
    """The polynomial through a function at the Chebyshev nodes of an interval.

    Its greatest error is within a small factor of the least possible.

    Returns:
        The coefficients, ascending, each rounded to float64.
    """
    size = degree + 1
    nodes = [
        (least + most) / 2 + (most - least) / 2 * cosine(PI * (2 * k + 1) / (2 * size))
        for k in range(size)
    ]
    divided = [function(node) for node in nodes]  # Newton's divided differences
    for order in range(1, size):
        for k in range(size - 1, order - 1, -1):
            divided[k] = (divided[k] - divided[k - 1]) / (nodes[k] - nodes[k - order])
    result = [Decimal(0)] * size
    for node, value in zip(reversed(nodes), reversed(divided), strict=True):
        shifted = [Decimal(0), *result[:-1]]
        result = [up - node * same for up, same in zip(shifted, result, strict=True)]
        result[0] += value
    return tuple(float(Fraction(coefficient)) for coefficient in result)


def exp2_minus_one() -> tuple[float, ...]:
    """`(2^x - 1) / x` on [-1/2, 1/2]."""
    half = 1 / _TWO
    return interpolate(lambda x: (_TWO**x - 1) / x, -half, half, 9)


def log2() -> tuple[float, ...]:
    """`log2((1 + s) / (1 - s)) / s` in `s^2`, for a logarithm on [sqrt(1/2), sqrt(2)]."""

    def function(square: Decimal) -> Decimal:
        s = square.sqrt()
        return ((1 + s) / (1 - s)).ln() / _TWO.ln() / s

    most = (_TWO.sqrt() - 1) / (_TWO.sqrt() + 1)
    return interpolate(function, Decimal(0), most * most, 6)


def sine_rest() -> tuple[float, ...]:
    """`(sin(x)/x - 1) / x^2` in `x^2`, on [-pi/4, pi/4]."""
    return interpolate(
        lambda square: (sine(square.sqrt()) / square.sqrt() - 1) / square,
        Decimal(0),
        (PI / 4) ** 2,
        5,
    )


def cosine_rest() -> tuple[float, ...]:
    """`(cos(x) - 1) / x^2` in `x^2`, on [-pi/4, pi/4]."""
    return interpolate(
        lambda square: (cosine(square.sqrt()) - 1) / square, Decimal(0), (PI / 4) ** 2, 5
    )
