"""The figures of a run that are compared, by the names that gates use.

The names are the columns of `memlab run --csv`, and those that follow from them (`DERIVED`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from memlab.device.measurement import Counters
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.comparison.medians import NORMAL_QUANTILE
from memlab.roofline.comparison.records import FigureChange
from memlab.roofline.comparison.times import SAME_SHARE
from memlab.roofline.documents.runs import ROW_COLUMNS, run_row
from memlab.roofline.placement import bytes_moved
from memlab.roofline.run import TRAFFIC_LEVELS
from memlab.roofline.units import parameters_text

if TYPE_CHECKING:
    from memlab.device.measurement import Coverage, Measurement
    from memlab.roofline.comparison.records import Judgement, TimeChange, Value
    from memlab.roofline.run import Run

ALIASES = {"time": "median_s", "fraction_of_roof": "fraction_of_ceiling"}
"""Short names of columns, for gates."""

SHARES = ("occupancy", "fraction_of_ceiling", "relative_standard_error")
"""Figures from 0 to 1: a percentage without a sign is such a value, not a change."""

TIME_FIGURES = ("median_s", "flop_per_s", "fraction_of_ceiling")
"""Figures that follow from the time: they are as certain as the time is."""


def _ratio(over: str, under: str) -> Callable[[Run], Value]:
    def read(run: Run) -> Value:
        counters = run.measurement.counters
        divisor = getattr(counters, under)
        return getattr(counters, over) / divisor if divisor else None

    return read


def _bytes_at(level: str) -> Callable[[Run], Value]:
    return lambda run: bytes_moved(run.measurement)[level]


DERIVED: Mapping[str, Callable[[Run], Value]] = {
    "global_load_sectors_per_request": _ratio("global_load_sectors", "global_load_requests"),
    "global_store_sectors_per_request": _ratio("global_store_sectors", "global_store_requests"),
    "shared_load_wavefronts_per_instruction": _ratio(
        "shared_load_wavefronts", "shared_load_instructions"
    ),
    "shared_store_wavefronts_per_instruction": _ratio(
        "shared_store_wavefronts", "shared_store_instructions"
    ),
    "spill_loads": lambda run: run.measurement.instructions.spill_loads,
    "spill_stores": lambda run: run.measurement.instructions.spill_stores,
    **{f"{level}_bytes_moved": _bytes_at(level) for level in TRAFFIC_LEVELS[:-1]},
}
"""Figures that are no columns of their own, by name."""

UNITS = {
    "dynamic_shared_bytes": "B",
    "static_shared_bytes": "B",
    "local_bytes_per_thread": "B",
    "compulsory_bytes": "B",
    "dram_read_bytes": "B",
    "dram_write_bytes": "B",
    "occupancy": "1",
    "fraction_of_ceiling": "1",
    "median_s": "s",
    "flop_per_s": "FLOP/s",
    **{f"{level}_bytes_moved": "B" for level in TRAFFIC_LEVELS},
    **{f"intensity_{level}_flop_per_byte": "FLOP/B" for level in TRAFFIC_LEVELS},
}
"""The unit of each figure that is no count."""

LAUNCH = ("kernel", "parameters", "device", "grid", "block", "dynamic_shared_bytes")
RESOURCES = (
    "compile_options",
    "registers_per_thread",
    "static_shared_bytes",
    "local_bytes_per_thread",
    "occupancy",
    "blocks_per_sm",
    "occupancy_limiter",
)
RESULT = ("median_s", "flop_per_s", "bound", "fraction_of_ceiling", "verification")

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "launch": LAUNCH,
    "resources": RESOURCES,
    "counters": (*Counters.names(), *list(DERIVED)[: -len(TRAFFIC_LEVELS) + 1]),
    "bytes": (*(f"{level}_bytes_moved" for level in TRAFFIC_LEVELS[:-1]), "compulsory_bytes"),
    "intensity": tuple(f"intensity_{level}_flop_per_byte" for level in TRAFFIC_LEVELS),
    "result": RESULT,
}
"""The figures of a comparison by the section of its report."""

LABELS = {
    "dynamic_shared_bytes": "dynamic shared",
    "static_shared_bytes": "static shared",
    "local_bytes_per_thread": "local/thread",
    "registers_per_thread": "registers",
    "occupancy_limiter": "limited by",
    "compile_options": "options",
    "blocks_per_sm": "blocks per SM",
    "shared_load_wavefronts_per_instruction": "shared load wavefronts each",
    "shared_store_wavefronts_per_instruction": "shared store wavefronts each",
    "global_load_sectors_per_request": "global load sectors each",
    "global_store_sectors_per_request": "global store sectors each",
    "iop_alu": "integer OP, ALU",
    "iop_fma": "integer OP, FMA",
    "iop_xu": "integer OP, XU",
    "median_s": "time",
    "flop_per_s": "rate",
    "fraction_of_ceiling": "of the ceiling",
    "bound": "bound by",
    "compulsory_bytes": "compulsory",
    **{f"{level}_bytes_moved": ceiling_label(level) for level in TRAFFIC_LEVELS[:-1]},
    **{f"intensity_{level}_flop_per_byte": ceiling_label(level) for level in TRAFFIC_LEVELS},
}

_ABBREVIATIONS = ("l1", "l2", "lrc", "dram", "flop", "fp32", "fp64", "fp16", "bf16", "tf32", "fp8")
_COUNTS_OF_COST = ("requests", "sectors", "wavefronts", "instruction", "lines", "passes", "spill")
_COST_BYTES = ("dram_read_bytes", "dram_write_bytes", "local_bytes_per_thread", "_bytes_moved")


def better_direction(name: str) -> int:
    """Tell which direction of a figure is better: -1 less, 1 more, 0 neither as such.

    Traffic, instructions and time cost; FLOPs and cache hits by themselves do not.
    """
    if name in ("flop_per_s", "occupancy"):
        return 1
    if name == "median_s" or any(text in name for text in _COST_BYTES):
        return -1
    if name.startswith(("flop", "intensity")):
        return 0
    if name.startswith("requested_"):
        return -1
    return -1 if any(text in name for text in _COUNTS_OF_COST) else 0


def figure_values(run: Run) -> dict[str, Value]:
    """Give all figures of a run by name: the columns of its row, and the derived ones."""
    values: dict[str, Value] = dict(run_row(run))
    # Readers know a kernel's parameters as reports write them.
    values["parameters"] = parameters_text(run.measurement.parameters)
    return values | {name: read(run) for name, read in DERIVED.items()}


def figure_names() -> tuple[str, ...]:
    """All names of figures, in the order of the CSV."""
    return (*ROW_COLUMNS, *DERIVED, *ALIASES)


def is_same(a: Value, b: Value) -> bool:
    """Tell whether two values are the same, but for the last digits of floating-point numbers."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=SAME_SHARE)
    return a == b


def relative_change(a: Value, b: Value) -> float | None:
    """Give (b - a) / a; 0 where both are zero, None where it is not defined."""
    if not _is_number(a) or not _is_number(b):
        return None
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    if is_same(a, b):
        return 0.0
    return (b - a) / a if a else None


def relative_error(first: Measurement, second: Measurement) -> float:
    """Give half the width of the 95% interval of a counter's relative change.

    Returns:
        0 for exact counts; for estimates from sampled blocks, from their standard errors. NaN
        where such an error is not known.
    """
    errors = [_standard_error(side.coverage) for side in (first, second)]
    return NORMAL_QUANTILE * math.hypot(*errors)


def _standard_error(coverage: Coverage) -> float:
    if coverage.timed_out:
        return math.nan
    if not coverage.estimated:
        return 0.0
    error = coverage.relative_standard_error
    return math.nan if error is None else error


def compare_figures(a: Run, b: Run, time: TimeChange, same_work: bool) -> list[FigureChange]:
    """Put all figures of two runs side by side.

    Args:
        a: The first run.
        b: The second run.
        time: The comparison of their times, which judges the figures that follow from it.
        same_work: Whether both do the same work; otherwise no counter is better or worse.
    """
    first, second = figure_values(a), figure_values(b)
    error = relative_error(a.measurement, b.measurement)
    counted = not (a.measurement.coverage.not_counted or b.measurement.coverage.not_counted)
    changes = []
    for section, names in SECTIONS.items():
        if section in ("counters", "bytes", "intensity") and not counted:
            continue
        for name in names:
            old, new = first.get(name), second.get(name)
            change = relative_change(old, new)
            if name in TIME_FIGURES:
                judgement = _time_judgement(name, time, change)
            else:
                uncertain = section in ("counters", "bytes", "intensity")
                judgement = _judgement(name, old, new, error if uncertain else 0.0, same_work)
            changes.append(
                FigureChange(
                    section,
                    name,
                    LABELS.get(name) or _label(name),
                    UNITS.get(name, ""),
                    old,
                    new,
                    change,
                    judgement,
                )
            )
    return changes


def _label(name: str) -> str:
    words = name.split("_")
    return " ".join(word.upper() if word in _ABBREVIATIONS else word for word in words)


def _judgement(name: str, a: Value, b: Value, error: float, same_work: bool) -> Judgement:
    if is_same(a, b):
        return "same"
    if not (_is_number(a) and _is_number(b)):
        return "changed"
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    # Without a known error an estimate is no evidence.
    if error and a > 0 and b > 0 and not abs(math.log(b / a)) > error:
        return "within error"
    direction = better_direction(name) if same_work else 0
    if not direction:
        return "changed"
    return "better" if (b - a) * direction > 0 else "worse"


def _time_judgement(name: str, time: TimeChange, change: float | None) -> Judgement:
    if change == 0:
        return "same"
    if time.call in ("undecided", "no difference"):
        return "within error"
    if time.call == "not comparable" or change is None:
        return "changed"
    faster = time.call == "faster"
    # Less traffic raises the ceiling, and lowers the share; fewer FLOPs lower the rate.
    if name == "fraction_of_ceiling" or (name == "flop_per_s" and faster != (change > 0)):
        return "changed"
    return "better" if faster else "worse"


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
