"""The comparison of two runs, or of two sets of runs.

The order decides what a difference means: first whether the outputs are right and the machine code
differs, then the counters, which have no noise, then the times, which have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from memlab.device.measurement import Counters
from memlab.roofline.comparison.figures import compare_figures, relative_error
from memlab.roofline.comparison.lines import compare_lines
from memlab.roofline.comparison.obstacles import (
    does_same_work,
    reader_notes,
    time_obstacles,
    wrong_outputs,
)
from memlab.roofline.comparison.records import CodeChange, PairComparison
from memlab.roofline.comparison.times import DEFAULT_THRESHOLD, compare_times
from memlab.roofline.comparison.wording import change_text

if TYPE_CHECKING:
    from memlab.roofline.comparison.records import Call, FigureChange, TimeChange
    from memlab.roofline.run import Run

COMPILER_PARAMETERS = (
    "defines",
    "std",
    "max_registers",
    "use_fast_math",
    "ftz",
    "prec_div",
    "prec_sqrt",
    "fmad",
    "ptxas_options",
)
"""Parameters of user kernels that matter only as far as they change the machine code."""

_NUMBER = re.compile(r"[+-]?\d[\d,.]*(?:\s?[kMGTPµmn](?=\w*\b))?")


def compare_runs(
    a: Run, b: Run, *, threshold: float = DEFAULT_THRESHOLD, force: bool = False
) -> PairComparison:
    """Put two runs side by side.

    Args:
        a: The first run, usually the older one.
        b: The second run.
        threshold: The relative difference of times up to which they count as equal.
        force: Whether to compare times in spite of obstacles.
    """
    wrong = wrong_outputs(a, b)
    obstacles = (*wrong, *time_obstacles(a.measurement, b.measurement))
    code = compare_code(a, b)
    forbidding = () if force else obstacles
    time = compare_times(
        a.measurement.time, b.measurement.time, threshold, comparable=not (forbidding or wrong)
    )
    figures = tuple(compare_figures(a, b, time, does_same_work(a.measurement, b.measurement)))
    differing = [
        change
        for change in figures
        if change.name in Counters.names() and change.judgement not in ("same", "within error")
    ]
    call, verdict = _verdict(wrong, forbidding, code, time, bool(differing))
    return PairComparison(
        a=a,
        b=b,
        call=call,
        verdict=verdict,
        obstacles=obstacles,
        notes=tuple(reader_notes(a, b)),
        code=code,
        counters=_counters_text(a, b, differing),
        counters_differ=bool(differing),
        time=time,
        figures=figures,
        lines=tuple(compare_lines(a.measurement.lines, b.measurement.lines)),
        advice_gone=_without_like(a.advice, b.advice),
        advice_new=_without_like(b.advice, a.advice),
    )


def match_runs(
    first: Sequence[Run], second: Sequence[Run]
) -> tuple[list[tuple[Run, Run]], list[Run], list[Run]]:
    """Find the partner of each run: the one of the same kernel, parameters and device.

    Of runs that agree in these the last one counts. Runs that are left are matched without the
    device, and then without the kernel if either set has a single one, where that is unambiguous;
    two single runs are partners in any case.

    Returns:
        The pairs in the order of the second set, and the runs of each set without a partner.
    """
    if len(first) == len(second) == 1:
        return [(first[0], second[0])], [], []
    left, right = (list({_point(run): run for run in runs}.values()) for runs in (first, second))
    single_kernels = all(
        len({run.measurement.kernel for run in runs}) == 1 for runs in (left, right)
    )
    partners: dict[int, Run] = {}
    for key in (_point, _point_of_any_device, *([_parameters] if single_kernels else [])):
        free = [run for run in right if id(run) not in partners]
        for name, run in _unambiguous(left, key).items():
            partner = _unambiguous(free, key).get(name)
            if partner is not None:
                partners[id(partner)] = run
                left = [other for other in left if other is not run]
    pairs = [(partners[id(run)], run) for run in right if id(run) in partners]
    return pairs, left, [run for run in right if id(run) not in partners]


def compare_code(a: Run, b: Run) -> CodeChange:
    """Tell whether two runs executed the same machine code, and in the same launch."""
    first, second = a.measurement, b.measurement
    machine = _same_hash(first.code.machine_code_sha256, second.code.machine_code_sha256)
    source = _same_hash(first.code.source_sha256, second.code.source_sha256)
    launch = _launch(a) == _launch(b)
    if machine == "unknown":
        text = "unknown whether the machine code is the same: a run does not record its hash"
    elif machine == "different":
        where = {"same": "; the source is the same"}.get(source, "")
        if first.device.compute_capability != second.device.compute_capability:
            where += "; it is compiled for two architectures"
        text = f"the machine code differs{where}"
    else:
        text = "the machine code is the same"
        if source == "different":
            text += ", though the text of the source differs"
        text = f"no code change: {text}" if launch else f"{text}; the launch differs"
    return CodeChange(machine, source, launch, text)


def _same_hash(first: str, second: str) -> Literal["same", "different", "unknown"]:
    if not first or not second:
        return "unknown"
    return "same" if first == second else "different"


def _launch(run: Run) -> tuple[Any, ...]:
    measurement = run.measurement
    given = {
        name: value
        for name, value in measurement.parameters.items()
        if name not in COMPILER_PARAMETERS
    }
    return (
        given,
        measurement.grid,
        measurement.block,
        measurement.cluster,
        measurement.dynamic_shared_bytes,
        measurement.device.key,
        measurement.device.name,
    )


def _point(run: Run) -> tuple[Any, ...]:
    device = run.measurement.device
    return (*_point_of_any_device(run), device.key, device.name)


def _point_of_any_device(run: Run) -> tuple[Any, ...]:
    return (run.measurement.kernel, *_parameters(run))


def _parameters(run: Run) -> tuple[Any, ...]:
    return tuple(sorted((name, str(value)) for name, value in run.measurement.parameters.items()))


def _unambiguous(
    runs: Sequence[Run], key: Callable[[Run], tuple[Any, ...]]
) -> dict[tuple[Any, ...], Run]:
    """Give the runs whose key no other of them has."""
    keys = [key(run) for run in runs]
    return {name: run for name, run in zip(keys, runs, strict=True) if keys.count(name) == 1}


def _counters_text(a: Run, b: Run, differing: Sequence[FigureChange]) -> str:
    """Say what the differences of counters mean."""
    if a.measurement.coverage.not_counted or b.measurement.coverage.not_counted:
        return "not counted"
    count = len(differing)
    what = f"{count} counter{'' if count == 1 else 's'} differ{'s' if count == 1 else ''}"
    error = relative_error(a.measurement, b.measurement)
    if not error:
        return f"{what}; emulated, so without noise" if count else "the same; no counter differs"
    size = "of unknown error" if math.isnan(error) else f"with an error of {100 * error:.2g}% (95%)"
    if not count:
        return f"no difference beyond their error; estimates {size}"
    return f"{what} by more than their error; estimates {size}"


def _verdict(
    wrong: Sequence[str],
    obstacles: Sequence[str],
    code: CodeChange,
    time: TimeChange,
    counters_differ: bool,
) -> tuple[Call, str]:
    if wrong:
        return "wrong output", wrong[0]
    if obstacles:
        return "not comparable", f"not comparable: {obstacles[0]}"
    if code.unchanged:
        blame = ""
        if time.call in ("faster", "slower") and time.provenance == "measured":
            blame = f"; the time moved by {change_text(time.relative)} for another reason"
        elif counters_differ:
            blame = "; counters differ for another reason: data, or memlab's version"
        return "no code change", code.text + blame
    if time.call == "no difference" and counters_differ:
        return "counters differ", f"counters differ; {time.text}"
    return time.call, time.text


def _without_like(advice: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Leave out the advice that the other run has too, with other numbers."""
    known = {_NUMBER.sub("#", text) for text in others}
    return tuple(text for text in advice if _NUMBER.sub("#", text) not in known)
