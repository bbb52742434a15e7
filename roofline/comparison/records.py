"""The records of a comparison: pairs of runs, their figures, lines, times and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from memlab.device.measurement import LineCounters
from memlab.presentation import Presentable
from memlab.roofline.run import Run

Value: TypeAlias = str | int | float | None
"""One side of a figure: a number in base units, a text, or None where it is not known."""

Judgement: TypeAlias = Literal["same", "better", "worse", "changed", "within error"]
"""What a difference of a figure means; `changed` where neither direction is better as such."""

Call: TypeAlias = Literal[
    "wrong output",
    "not comparable",
    "no code change",
    "faster",
    "slower",
    "no difference",
    "counters differ",
    "undecided",
]
"""The verdict on a pair of runs in a word."""

TimeCall: TypeAlias = Literal["faster", "slower", "no difference", "undecided", "not comparable"]


@dataclass(frozen=True)
class FigureChange:
    """One figure of both runs.

    Attributes:
        section: Where it stands in reports: `launch`, `resources`, `counters`, `bytes`,
            `intensity` or `result`.
        name: Its name, as in the CSV of runs where that has it.
        label: Its name in reports.
        unit: The unit of numbers: `B`, `s`, `FLOP/s`, `FLOP/B`, `1` for a share; empty for counts.
        a: The value of run A.
        b: The value of run B.
        relative: (b - a) / a; None where a is zero and b is not, or one of them is no number.
        judgement: What the difference means.
    """

    section: str
    name: str
    label: str
    unit: str
    a: Value
    b: Value
    relative: float | None
    judgement: Judgement


@dataclass(frozen=True)
class LineChange:
    """One source line of both runs, matched by its text.

    Attributes:
        match: `same` text, `edited`, `gone` (in A alone) or `new` (in B alone).
        a: The line's counters in A; None for a new line.
        b: The line's counters in B; None for a line that is gone.
        counters: The counters that differ: values of A and B by name, in the order of documents.
    """

    match: Literal["same", "edited", "gone", "new"]
    a: LineCounters | None
    b: LineCounters | None
    counters: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class CodeChange:
    """Whether both runs executed the same code.

    Attributes:
        machine_code: `same`, `different`, or `unknown` where a run does not record it.
        source: The same for the text of the source.
        launch: Whether grid, block, parameters and device are the same.
        text: The conclusion in one sentence.
    """

    machine_code: Literal["same", "different", "unknown"]
    source: Literal["same", "different", "unknown"]
    launch: bool
    text: str

    @property
    def unchanged(self) -> bool:
        """Whether both runs executed the same machine code in the same launch."""
        return self.machine_code == "same" and self.launch


@dataclass(frozen=True)
class TimeChange:
    """The times of both runs.

    Attributes:
        provenance: `measured`, `modelled`, or `mixed` where one time is modelled.
        a_s: The time of A, seconds.
        b_s: The time of B, seconds.
        relative: b_s / a_s - 1.
        low: Lower end of the interval of `relative`: of 95% confidence for measured times, else
            what the model's error allows (`Time.interval_low_s`). None where it is not known, such
            as of fewer than six samples.
        high: Its upper end.
        samples: The number of samples of A and B; 0 for modelled times.
        correlation: The factors by which correlated samples widened the variances of A and B.
        call: What it means: beyond the threshold or not; `undecided` where the interval
            contains a limit, `not comparable` where obstacles forbid a call. A modelled change
            within the threshold is `no difference`.
        text: The same in one sentence.
    """

    provenance: Literal["measured", "modelled", "mixed"]
    a_s: float
    b_s: float
    relative: float
    low: float | None
    high: float | None
    samples: tuple[int, int]
    correlation: tuple[float, float]
    call: TimeCall
    text: str


@dataclass(frozen=True)
class PairComparison:
    """Run A beside run B.

    Attributes:
        a: The first run, usually the older one.
        b: The second run.
        call: The verdict in a word.
        verdict: The verdict in a sentence.
        obstacles: Why the two times must not be compared, the most serious first.
        notes: Other differences that a reader must know.
        code: Whether the machine code is the same.
        counters: What a difference of counters means here, in a sentence: exact or an estimate.
        counters_differ: Whether a counter differs by more than its error.
        time: The times.
        figures: All figures, in the order of the report.
        lines: The source lines whose counters differ, in the order of the source.
        advice_gone: Advice on A that B no longer needs.
        advice_new: Advice on B that A did not need.
    """

    a: Run
    b: Run
    call: Call
    verdict: str
    obstacles: tuple[str, ...]
    notes: tuple[str, ...]
    code: CodeChange
    counters: str
    counters_differ: bool
    time: TimeChange
    figures: tuple[FigureChange, ...]
    lines: tuple[LineChange, ...]
    advice_gone: tuple[str, ...]
    advice_new: tuple[str, ...]

    def figure(self, name: str) -> FigureChange:
        """Return a figure by its name.

        Raises:
            KeyError: There is none.
        """
        found = {change.name: change for change in self.figures}
        return found[name]


@dataclass(frozen=True)
class ConditionResult:
    """A gate's condition, judged on one pair of runs, or on one run.

    Attributes:
        condition: The condition as written: `time>+3%`.
        subject: The run that it was judged on, in words.
        name: The figure's name.
        status: `held` (the gate fails), `passed`, or `not judged` (the gate fails too, but for
            the gate of a baseline).
        text: What was found, in one line.
        pair: The place of the pair in `Comparison.pairs`; None for a single run.
    """

    condition: str
    subject: str
    name: str
    status: Literal["held", "passed", "not judged"]
    text: str
    pair: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the gate fails by this condition."""
        return self.status != "passed"


@dataclass(frozen=True, repr=False)
class Comparison(Presentable):
    """Runs A beside runs B.

    Attributes:
        pairs: The runs that have a partner, in the order of B.
        only_a: Runs of A without a partner.
        only_b: Runs of B without a partner.
        threshold: The relative difference of times up to which they count as equal, 0.01 for 1%.
        forced: Whether times were compared in spite of obstacles.
        conditions: The conditions of the gate, judged.
    """

    pairs: tuple[PairComparison, ...]
    only_a: tuple[Run, ...] = ()
    only_b: tuple[Run, ...] = ()
    threshold: float = 0.01
    forced: bool = False
    conditions: tuple[ConditionResult, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a condition of the gate holds, or could not be judged."""
        return any(result.failed for result in self.conditions)

    @property
    def wrong(self) -> bool:
        """Whether the output of a run of B is wrong."""
        return any(pair.b.measurement.verification.status == "failed" for pair in self.pairs)
