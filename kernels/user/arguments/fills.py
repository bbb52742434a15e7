"""Numbers and fills: texts such as `0x400`, `arange` and `uniform:-1:1`, parsed and checked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import (
    Arange,
    Fill,
    InMemoryArray,
    MemberFills,
    MemberType,
    NpyFile,
    SingleValue,
    StructureType,
    Uniform,
)
from memlab.kernels.user import expressions
from memlab.kernels.user.arguments.specifications import (
    MAX_FLOATS,
    MAX_LISTED_MEMBERS,
    SHORT_DTYPES,
)


def is_number(text: str) -> bool:
    """Whether a text is a plain number, `true` or `false`: a scalar without a type."""
    plain = text.strip()
    return (
        parse_integer(plain) is not None
        or parse_float(plain) is not None
        or plain.lower() in ("true", "false")
    )


def parse_integer(text: str) -> int | None:
    """Parse `1024`, `1_024` or `0x400`; None for any other text."""
    try:
        return int(text, 0)
    except ValueError:
        return None


def parse_float(text: str) -> float | None:
    """Parse `2.5`, `inf` or `nan`; None for any other text."""
    try:
        return float(text)
    except ValueError:
        return None


def parse_scalar(dtype: str, text: str) -> int | float:
    """Parse the value of a scalar.

    Raises:
        UsageError: It is not a number, or outside the range of the type.
    """
    if dtype in MAX_FLOATS:
        most = MAX_FLOATS[dtype]
        number = parse_float(text)
        if number is None:
            raise UsageError(
                f"{text!r} is not of type {dtype}: write a number, inf or nan, as in {dtype}=2.0"
            )
        if math.isfinite(number) and abs(number) > most:
            raise UsageError(
                f"{text!r} is too large for {dtype}: use at most {most:.9g}, or {dtype}=inf"
            )
        return number
    if dtype == "bool" and text.lower() in ("true", "false"):
        return int(text.lower() == "true")
    low, high = integer_range(dtype)
    whole = parse_integer(text)
    if whole is None or not low <= whole <= high:
        raise UsageError(
            f"{text!r} is not of type {dtype}: write a whole number from {low} to {high}"
        )
    return whole


def integer_range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type or of `bool`."""
    if dtype == "bool":
        return 0, 1
    bits = int(dtype[1:])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype[0] == "i" else (0, 2**bits - 1)


def parse_fill(dtype: str, text: str) -> Fill | None:
    """Parse the fill of an array: `random`, `zeros`, `randint:0:10`, `@FILE.npy` and so on.

    Args:
        dtype: The type of its elements, for example `f32`.
        text: The text after the `=`.

    Returns:
        The fill; None for random elements.

    Raises:
        UsageError: There is no such fill, or this type does not have it.
    """
    name, _, bounds = text.partition(":")
    if text.startswith("@"):
        if not text[1:]:
            raise UsageError("@ names no file: write @FILE.npy")
        return NpyFile(text[1:])
    if name in ("randint", "uniform"):
        return _parse_uniform(dtype, name, bounds)
    fills: dict[str, Fill | None] = {
        "random": None,
        "zeros": SingleValue(0),
        "ones": SingleValue(1),
        "arange": Arange(),
    }
    if text not in fills:
        if parse_float(text) is not None or parse_integer(text) is not None:
            return SingleValue(parse_scalar(dtype, text))
        names = [*fills, "randint:LO:HI", "uniform:LO:HI", "@FILE.npy", "a number"]
        raise UsageError(f"an array cannot be filled with {text!r}: {suggest_nearest(text, names)}")
    return fills[text]


def _parse_uniform(dtype: str, name: str, bounds: str) -> Uniform:
    """Parse the bounds of random elements: integers by `randint`, floats by `uniform`.

    Raises:
        UsageError: `name` does not suit the type, or the bounds are malformed.
    """
    fill_name = "uniform" if dtype in MAX_FLOATS else "randint"
    if dtype == "bool" or name != fill_name:
        alternative = "random" if dtype == "bool" else f"{fill_name}:LO:HI"
        raise UsageError(f"{name} does not fill {dtype} elements: use {alternative}")
    low, _, high = bounds.partition(":")
    if fill_name == "randint":
        smallest, largest = integer_range(dtype)
        first, end = parse_integer(low), parse_integer(high)
        if first is None or end is None or not smallest <= first < end <= largest + 1:
            raise UsageError(
                f"{bounds!r} is not a range of {dtype}: write randint:LO:HI with whole numbers, "
                f"{smallest} <= LO < HI <= {largest + 1}; HI itself is excluded"
            )
        return Uniform(first, end)
    start, stop = parse_float(low), parse_float(high)
    most = MAX_FLOATS[dtype] / 2  # keeps the width, a factor of the random numbers, finite
    if start is None or stop is None or not -most <= start < stop <= most:
        raise UsageError(
            f"{bounds!r} is not a range of {dtype}: write uniform:LO:HI with LO < HI, "
            "as in uniform:-1:1"
        )
    return Uniform(start, stop)


def parse_member_fills(structure: StructureType, text: str) -> Fill | None:
    """Parse the fill of an array of structures: one for all numbers, or a list with one for each.

    Of one range for all, integers are drawn from its whole numbers, and floats from all.

    Args:
        structure: The type of the structures.
        text: The text after the `=`: `zeros`, `arange,uniform:-1:1`, `@FILE.npy`.

    Returns:
        The fill; None for random elements.

    Raises:
        UsageError: The list has another length, or a type does not have its fill.
    """
    if text.startswith("@"):
        return parse_fill("u8", text)
    if text in ("", "random"):
        return None
    fills, numbers = expressions.split_list(text), structure.numbers
    if len(fills) not in (1, len(numbers)):
        listed = ", ".join(member_path(path) for path in numbers[:MAX_LISTED_MEMBERS])
        raise UsageError(
            f"{text!r} has {len(fills)} fills for {len(numbers)} members ({listed}): give one for "
            "all, or one for each"
        )
    parsed = []
    for number, path in enumerate(numbers):
        dtype = SHORT_DTYPES[path[-1].dtype]
        text = fills[number % len(fills)].strip()
        try:
            fill = parse_fill(dtype, text if len(fills) > 1 else _range_of_type(dtype, text))
        except UsageError as error:
            raise UsageError(f"{member_path(path)} ({dtype}): {error}") from None
        if isinstance(fill, NpyFile | InMemoryArray | MemberFills):
            raise UsageError(
                f"{member_path(path)} cannot be read from a file of its own: give one of whole "
                "structures, =@FILE.npy"
            )
        parsed.append(fill)
    return MemberFills(tuple(parsed))


def _range_of_type(dtype: str, text: str) -> str:
    """A range of random numbers for all members, as one of a member's own type."""
    name, _, bounds = text.partition(":")
    low, high = (parse_float(bound) for bound in [*bounds.split(":"), ""][:2])
    if dtype == "bool" or low is None or high is None or not math.isfinite(low + high):
        return text
    if name == "randint" and dtype in MAX_FLOATS:
        return f"uniform:{bounds}"
    if name == "uniform" and dtype not in MAX_FLOATS and math.ceil(low) < math.ceil(high):
        return f"randint:{math.ceil(low)}:{math.ceil(high)}"
    return text


def member_path(path: Sequence[MemberType]) -> str:
    """The name of a number in a structure: `corner.x`."""
    return ".".join(member.name for member in path)
