# ruff: noqa
# mypy: ignore-errors
"""For the time of the move to compiled functions."""

from typing import Any

from memlab.device.emulator.codegen import pattern_code, use_code
from memlab.device.emulator.codegen.layout import Pattern
from memlab.device.emulator.codegen.records import (
    NUMBER,
    Number,
    Pointer,
    builder,
    raw_value,
    start_of,
)
from memlab.device.emulator.codegen.runtime_parts import call
from memlab.device.emulator.isa.values import PRED, S64, U32, Value


def _m(mask: Any) -> Any:
    return raw_value(Number(U32), mask)


def relative_to_first(record: Any, mask: Any) -> Any:
    first, rel = pattern_code.relative_to_first(builder(), start_of(record), _m(mask))
    return Value(builder(), first, S64), rel


def same_pattern(pattern: Any, relative: Any, mask: Any) -> Any:
    return Value(
        builder(), pattern_code.same_pattern(builder(), start_of(pattern), relative, _m(mask)), PRED
    )


def find_pattern(context: Any, record: Any, mask: Any) -> Any:
    return Pointer(
        call(builder(), "find_pattern", start_of(context), start_of(record), _m(mask)), Pattern
    )


def count_by_pattern(context: Any, site: Any, record: Any, pattern: Any) -> Any:
    pattern_code.count_by_pattern(builder(), *map(start_of, (context, site, record, pattern)))


def count_directly(
    context: Any, site: Any, space: Any, warp: Any, first: Any, relative: Any
) -> Any:
    pattern_code.count_directly(
        builder(),
        start_of(context),
        start_of(site),
        raw_value(NUMBER, space),
        raw_value(NUMBER, warp),
        raw_value(NUMBER, first),
        relative,
    )


def note_use(context: Any, site: Any, index: Any) -> Any:
    use_code.note_use(builder(), start_of(context), start_of(site), raw_value(NUMBER, index))


def mark_pattern(
    context: Any, site: Any, mask: Any, pattern: Any, first: Any, addresses: Any
) -> Any:
    use_code.mark_pattern(
        builder(),
        start_of(context),
        start_of(site),
        _m(mask),
        start_of(pattern),
        raw_value(NUMBER, first),
        addresses.ir,
    )


def mark_written(context: Any, addresses: Any, lanes: Any, size: Any) -> Any:
    call(
        builder(),
        "mark_written",
        start_of(context),
        start_of(addresses),
        _m(lanes),
        raw_value(NUMBER, size),
    )
