"""The gate: conditions on figures, such as `time>+3%`, judged on a comparison or on one run.

    CONDITION  =  NAME OPERATOR LIMIT
    NAME       =  a column of `memlab run --csv`, a derived figure, `time` or `fraction_of_roof`
    OPERATOR   =  >  >=  <  <=  ==  !=
    LIMIT      =  [+|-] NUMBER [%]

A limit with a sign is a change from A to B: relative with `%` (`time>+3%`), else in the figure's
unit (`registers_per_thread>+8`). A limit without a sign is B's own value (`local_load_sectors>0`,
`time>0.002`); with `%` it is one too where the figure is a share (`fraction_of_roof<80%`), and a
relative change for all others, which have no percentage (`global_load_sectors>0%`).

A change holds only if it is certain: the 95% interval of a measured time, or of a counter that was
estimated from sampled blocks, must lie beyond the limit. A modelled time whose change exceeds the
limit by less than the model's error cannot be judged: more samples would not decide it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memlab.device.measurement import Counters
from memlab.errors import UsageError, suggest_nearest
from memlab.roofline.comparison.figures import (
    ALIASES,
    DERIVED,
    SHARES,
    TIME_FIGURES,
    UNITS,
    better_direction,
    figure_names,
    figure_values,
    relative_change,
    relative_error,
)
from memlab.roofline.comparison.records import Comparison, ConditionResult
from memlab.roofline.comparison.times import model_error_text
from memlab.roofline.comparison.wording import change_text, interval_text, run_title, value_text

if TYPE_CHECKING:
    from memlab.roofline.comparison.records import PairComparison, Value
    from memlab.roofline.run import Run

EXAMPLES = "'time>+3%', 'global_load_sectors>0%' or 'fraction_of_roof<80%'"

_GRAMMAR = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(>=|<=|==|!=|>|<)\s*"
    r"([+-]?)\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)\s*(%?)\s*"
)
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_TEXTS = (
    "created_at",
    "memlab_version",
    "label",
    "note",
    "sweep",
    "git_commit",
    "git_clean",
    "kernel",
    "parameters",
    "device",
    "device_name",
    "device_kind",
    "compute_capability",
    "grid",
    "block",
    "cluster",
    "source_sha256",
    "machine_code_sha256",
    "compile_options",
    "occupancy_limiter",
    "estimated",
    "timed_out",
    "not_counted",
    "instructions_counted",
    "time_provenance",
    "bound",
    "ceiling",
    "verification",
    "advice",
)
"""Columns that hold no number."""


@dataclass(frozen=True)
class Condition:
    """A condition of a gate.

    Attributes:
        text: The condition as written, without blanks around it.
        name: The figure's name, aliases resolved.
        operator: One of `>`, `>=`, `<`, `<=`, `==`, `!=`.
        limit: The limit: a fraction for percentages, else in the figure's unit.
        kind: Whether it is about B's `value`, the `relative` change or the `difference`.
    """

    text: str
    name: str
    operator: str
    limit: float
    kind: Literal["value", "relative", "difference"]


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        UsageError: It is malformed, or names no figure that is a number.
    """
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no condition: write NAME, an operator and a limit: {EXAMPLES}"
        )
    written, sign, percentage = match[1], match[3], bool(match[5])
    name = ALIASES.get(written, written)
    known = [name for name in figure_names() if name not in _TEXTS]
    if written in _TEXTS:
        raise UsageError(f"{written} is no number, so {text!r} cannot be judged: use {EXAMPLES}")
    if written not in known:
        listing = "'memlab run KERNEL --csv' lists them"
        raise UsageError(
            f"unknown figure {written!r} in {text!r}: {suggest_nearest(written, known, listing)}"
        )
    limit = float(sign + match[4]) / (100 if percentage else 1)
    kind: Literal["value", "relative", "difference"] = "value"
    if sign:
        kind = "relative" if percentage else "difference"
    elif percentage and name not in SHARES:
        kind = "relative"
    return Condition(text.strip(), name, match[2], limit, kind)


def parse_own_condition(text: str) -> Condition:
    """Read a condition on a single run.

    Raises:
        UsageError: As `parse_condition`, or it is about a change.
    """
    condition = parse_condition(text)
    if condition.kind != "value":
        raise UsageError(
            f"{text!r} is about a change, and this is one run: give a value without a sign or "
            "'%', such as 'local_load_sectors>0', or use 'memlab compare'"
        )
    return condition


def judge_comparison(
    comparison: Comparison, conditions: Sequence[Condition]
) -> tuple[ConditionResult, ...]:
    """Judge conditions on each pair of runs."""
    return tuple(
        _judge_pair(condition, pair, place, comparison.forced)
        for place, pair in enumerate(comparison.pairs)
        for condition in conditions
    )


def judge_run(run: Run, conditions: Sequence[Condition]) -> tuple[ConditionResult, ...]:
    """Judge conditions on a run's own values."""
    return tuple(_judge_value(condition, run, None) for condition in conditions)


def regressions(comparison: Comparison) -> tuple[ConditionResult, ...]:
    """Judge what a baseline guards: no counter worse, no time slower beyond the threshold.

    A time that cannot be compared is passed over: the counters are the gate.
    """
    results = []
    for place, pair in enumerate(comparison.pairs):
        subject = run_title(pair.b)
        if pair.a.measurement.coverage.not_counted or pair.b.measurement.coverage.not_counted:
            text = "there are no counters to compare"
            results.append(
                ConditionResult("counters", subject, "counters", "not judged", text, place)
            )
        for change in pair.figures:
            guarded = change.name in Counters.names() or change.name in GUARDED_RESOURCES
            if guarded and better_direction(change.name):
                status: Literal["held", "passed"] = (
                    "held" if change.judgement == "worse" else "passed"
                )
                text = _values_text(change.name, change.a, change.b)
                condition = f"{change.name}>+0%"
                results.append(
                    ConditionResult(condition, subject, change.name, status, text, place)
                )
        slower = pair.call == "slower"
        results.append(
            ConditionResult(
                f"time>+{100 * comparison.threshold:g}%",
                subject,
                "median_s",
                "held" if slower else "passed",
                pair.verdict,
                place,
            )
        )
    return tuple(results)


GUARDED_RESOURCES = ("local_bytes_per_thread", "spill_loads", "spill_stores")
"""Figures besides counters that must not grow against a baseline."""


def _judge_value(condition: Condition, run: Run, place: int | None) -> ConditionResult:
    value = figure_values(run).get(condition.name)
    if not isinstance(value, int | float):
        return _result(condition, run, place, "not judged", f"{condition.name} is not known")
    held = _OPERATORS[condition.operator](value, condition.limit)
    text = f"{condition.name} is {value_text(value, UNITS.get(condition.name, ''))}"
    if condition.name in TIME_FIGURES and run.measurement.time.provenance != "measured":
        text += ", modelled"
    return _result(condition, run, place, "held" if held else "passed", text)


def _judge_pair(
    condition: Condition, pair: PairComparison, place: int, forced: bool
) -> ConditionResult:
    if condition.kind == "value":
        return _judge_value(condition, pair.b, place)
    name = condition.name
    a, b = figure_values(pair.a).get(name), figure_values(pair.b).get(name)
    text = _values_text(name, a, b)
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return _result(condition, pair.b, place, "not judged", f"{name} is not known")
    if name in TIME_FIGURES:
        if pair.obstacles and not forced:
            reason = f"{text}; not comparable: {pair.obstacles[0]}"
            return _result(condition, pair.b, place, "not judged", reason)
        if pair.code.unchanged and pair.time.provenance == "measured":
            reason = f"{text}; no code change"
            return _result(condition, pair.b, place, "passed", reason)
    interval = _change_interval(name, a, b, pair)
    if interval is None:
        reason = f"{text}; the error of this change is not known"
        return _result(condition, pair.b, place, "not judged", reason)
    low, high = interval
    modelled = name in TIME_FIGURES and pair.time.provenance != "measured"
    if low != high and math.isfinite(high) and condition.kind == "relative":
        allowed = model_error_text if modelled else interval_text
        text += f" ({'' if modelled else '95%: '}{allowed(interval)})"
    change = relative_change(a, b)
    middle = low if change is None else change
    if condition.kind == "difference":
        # Relative to zero there is no interval, but then the difference is B itself.
        low, high = (low * a, high * a) if a else (b, b)
        low, high, middle = min(low, high), max(low, high), b - a
    if _holds(condition, low, high):
        return _result(condition, pair.b, place, "held", text)
    if modelled and _holds(condition, middle, middle):
        reason = f"{text}; not certain: gate on counters, or measure on a GPU"
        return _result(condition, pair.b, place, "not judged", reason)
    return _result(condition, pair.b, place, "passed", text)


def _holds(condition: Condition, low: float, high: float) -> bool:
    """Whether a condition holds for all values from one to another."""
    compare, limit = _OPERATORS[condition.operator], condition.limit
    between = condition.operator == "!=" and low < limit < high
    return compare(low, limit) and compare(high, limit) and not between


def _change_interval(
    name: str, a: float, b: float, pair: PairComparison
) -> tuple[float, float] | None:
    """Give the interval of the relative change of a figure; None where its error is not known."""
    relative = relative_change(a, b)
    if relative is None:
        relative = math.inf if b > 0 else -math.inf
    if name in TIME_FIGURES:
        if pair.time.low is None or pair.time.high is None:
            return None
        if name == "median_s":
            return pair.time.low, pair.time.high
        # A rate is inverse to the time, whatever else changed.
        product = (1 + relative) * (1 + pair.time.relative)
        return product / (1 + pair.time.high) - 1, product / (1 + pair.time.low) - 1
    counted = name in Counters.names() or name in DERIVED or name.startswith("intensity")
    error = relative_error(pair.a.measurement, pair.b.measurement) if counted else 0.0
    if math.isnan(error):
        return None
    if not error:
        return relative, relative
    return (1 + relative) * math.exp(-error) - 1, (1 + relative) * math.exp(error) - 1


def _values_text(name: str, a: Value, b: Value) -> str:
    unit, change = UNITS.get(name, ""), change_text(relative_change(a, b))
    shown = f"{name} {value_text(a, unit)} -> {value_text(b, unit)}"
    return f"{shown}, {change}" if change and change != "none" else shown


def _result(
    condition: Condition,
    run: Run,
    place: int | None,
    status: Literal["held", "passed", "not judged"],
    text: str,
) -> ConditionResult:
    return ConditionResult(condition.text, run_title(run), condition.name, status, text, place)
