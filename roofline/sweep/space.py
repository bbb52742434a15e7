"""The space of a sweep: axes with their values, and the points that they span."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from memlab.errors import UsageError
from memlab.kernels.user import expressions

Value: TypeAlias = int | str
AxisKind = Literal["kernel", "device", "parameter", "symbol", "macro"]

MAX_POINTS = 1_000_000
"""The most values of an axis, and the most points of a sweep that runs all."""

_RANGE = re.compile(r"([^:]+):([^:]+):([x+])([^:]+)")
_RANGE_WITHOUT_STEP = re.compile(r"\d+[KMG]?:\d+[KMG]?(:.*)?")


@dataclass(frozen=True)
class Axis:
    """One thing that a sweep varies.

    Attributes:
        name: The parameter, symbol or macro; `kernel`, `device`.
        kind: What it names.
        values: Its values, in the order of the user.
    """

    name: str
    kind: AxisKind
    values: tuple[Value, ...]

    @property
    def varies(self) -> bool:
        """Whether it has more than one value."""
        return len(self.values) > 1

    @property
    def is_numeric(self) -> bool:
        """Whether all values are whole numbers."""
        return all(isinstance(value, int) for value in self.values)


@dataclass(frozen=True)
class Space:
    """All combinations of the values of axes, numbered; the last axis varies fastest."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """The number of points."""
        return math.prod(len(axis.values) for axis in self.axes)

    def place(self, number: int) -> tuple[int, ...]:
        """The position of a point on each axis."""
        places: list[int] = []
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis.values))
            places.append(place)
        return tuple(reversed(places))

    def number(self, place: Sequence[int]) -> int:
        """The number of the point at a position on each axis."""
        number = 0
        for axis, index in zip(self.axes, place, strict=True):
            number = number * len(axis.values) + index
        return number

    def values(self, number: int) -> dict[str, Value]:
        """The values of a point, by the names of the axes."""
        places = self.place(number)
        return {axis.name: axis.values[i] for axis, i in zip(self.axes, places, strict=True)}


def make_space(axes: Iterable[Axis]) -> Space:
    """Make a space.

    Raises:
        UsageError: Two axes have one name.
    """
    space = Space(tuple(axes))
    names = [axis.name for axis in space.axes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is given twice, as a symbol and as a macro: rename one")
    return space


def axis_values(name: str, given: Any) -> tuple[Value, ...]:
    """Read the values of an axis.

    Args:
        name: The axis, for messages.
        given: A number, a text, or a sequence of these. A text is a list (`8,16,32`) of values
            and ranges: `512:4096:x2` multiplies, `32:128:+32` adds; both ends belong to it.
            Numbers may have the suffixes K, M and G.

    Returns:
        Whole numbers where they are such, else texts; each once.

    Raises:
        UsageError: There is no value, or a range is malformed, empty or too long.
    """
    parts = given if isinstance(given, list | tuple) else [given]
    values: list[Value] = []
    for part in parts:
        for text in expressions.split_list(part) if isinstance(part, str) else [part]:
            if text == "":
                raise UsageError(f"{name} has an empty value in {given!r}: write {name}=8,16,32")
            values.extend(_value_or_range(name, text))
    if not values:
        raise UsageError(f"{name} has no values: give at least one")
    return tuple(dict.fromkeys(values))


def _value_or_range(name: str, part: Any) -> Iterable[Value]:
    if not isinstance(part, str):
        return [_plain_value(name, part)]
    match = _RANGE.fullmatch(part)
    if match is None:
        if _RANGE_WITHOUT_STEP.fullmatch(part):
            raise UsageError(
                f"{name}: the range {part!r} has no step such as x2 or +32: "
                f"write {name}=512:4096:x2 or {name}=32:128:+32"
            )
        return [expressions.whole_or_text(part)]
    return _range_values(name, part, *match.groups())


def _plain_value(name: str, value: Any) -> Value:
    index = getattr(value, "__index__", None)  # Python's and NumPy's whole numbers
    if index is not None and not isinstance(value, bool):
        return int(index())
    if isinstance(value, float):
        return repr(value)
    raise UsageError(
        f"{name} takes whole numbers and texts, got an object of type {type(value).__name__}: "
        f"write {name}=[8, 16] or {name}='8:64:x2'"
    )


def _range_values(
    name: str, text: str, first: str, last: str, kind: str, by: str
) -> Iterable[Value]:
    example = f"write {name}=512:4096:x2 or {name}=32:128:+32"
    try:
        low, high, step = (expressions.whole(part, {}) for part in (first, last, by))
    except UsageError:
        raise UsageError(f"{name}: {text!r} is not a range of whole numbers: {example}") from None
    if not 0 < low <= high or step < (2 if kind == "x" else 1):
        raise UsageError(f"{name}: the range {text!r} is empty or never ends: {example}")
    values = [low]
    while (following := values[-1] * step if kind == "x" else values[-1] + step) <= high:
        values.append(following)
        if len(values) > MAX_POINTS:
            raise UsageError(
                f"{name}: the range {text!r} has more than {MAX_POINTS:,} values: {example}"
            )
    return values
