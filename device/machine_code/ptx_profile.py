"""How often the instructions and loops of the PTX were executed, as the projection needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from memlab.device.emulator.codegen.layout import UNROLLINGS
from memlab.device.emulator.codegen.stretches import is_partial
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.program.code_layout import loop_branches
from memlab.device.emulator.program.polling_loops import find_polling_loops
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.emulator.ptx.parser import Immediate, Instruction, Register

SEVERAL = "several"
"""The opcode of an instruction that is executed as several, one behind the other."""
_INTEGER_ADDITIONS = ("add.s", "add.u")
_LEFT_ELSEWHERE = 0.01  # of a loop's entries
_WHOLE_TOLERANCE = 1e-6  # trips per entry that count as a whole number


@dataclass(frozen=True)
class PtxCount:
    """How often a PTX instruction was executed.

    Attributes:
        line: Its line in the PTX.
        opcode: Its opcode.
        lanes: Executions by threads, without those whose predicate was off.
        warps: Executions by warps.
        guarded: Whether it has a predicate.
        loop: The innermost loop that holds it; -1 for none.
        increment: The constant that it adds to its own register, as that of a loop's counter; 0 of
            other instructions.
        slow_lanes: Executions by threads with operands for which the machine code calls a function.
        slow_warps: Executions by warps with such threads.
        taken_lanes: Executions of a branch by threads that branch, as in `Tally.taken_lanes`.
        taken_warps: Executions by warps with such threads.
        parted_warps: Executions by warps with such threads and others.
    """

    line: int
    opcode: str
    lanes: float
    warps: float
    guarded: bool
    loop: int
    increment: int = 0
    slow_lanes: float = 0.0
    slow_warps: float = 0.0
    taken_lanes: float = 0.0
    taken_warps: float = 0.0
    parted_warps: float = 0.0


@dataclass(frozen=True)
class Rounds:
    """How often an unrolled loop is executed, but for the trips that remain each time.

    Attributes:
        entries: How often it is entered.
        total: How often it is executed.
    """

    entries: float
    total: float


@dataclass(frozen=True)
class PtxLoop:
    """A loop of the PTX.

    Attributes:
        iterations: How often threads executed it.
        entries: How often threads entered it.
        unrolled: What threads would do if it were unrolled, by the factor; empty where threads wait
            in it for others, since then the trips of those who go on are not told apart.
        unrolled_warps: The same of warps of which some thread does it.
        rest_warps: How often warps execute it for the trips that remain, by the factor of the
            unrolled loop and that of the code for the rest; empty where that is not known.
    """

    iterations: float
    entries: float
    unrolled: Mapping[int, Rounds] = field(default_factory=dict)
    unrolled_warps: Mapping[int, Rounds] = field(default_factory=dict)
    rest_warps: Mapping[tuple[int, int], float] = field(default_factory=dict)

    @property
    def trips(self) -> float:
        """Its iterations each time that a thread enters it; 0 if none does."""
        return self.iterations / self.entries if self.entries else 0.0

    @property
    def is_even(self) -> bool:
        """Whether threads make the same number of trips each time, as far as that is known."""
        whole = round(self.trips)
        return abs(self.trips - whole) < _WHOLE_TOLERANCE and all(
            abs(rounds.total - self.entries * (whole // unrolled))
            <= _WHOLE_TOLERANCE * self.iterations
            for unrolled, rounds in self.unrolled.items()
        )

    def rounds_unrolled(self, unrolled: int) -> float:
        """How often threads execute the loop if it is unrolled, but for the trips that remain.

        Where that was not recorded, half of a round remains of unequal trips, in the mean.
        """
        if unrolled in self.unrolled:
            return self.unrolled[unrolled].total
        if self.is_even:
            return self.entries * (round(self.trips) // unrolled)
        rest = (unrolled - 1) / 2 if self.trips > unrolled else 0.0
        return self.entries * (self.trips - rest) / unrolled


@dataclass(frozen=True)
class PtxProfile:
    """The executions of a program.

    Attributes:
        threads: How many threads began it.
        counts: The counts of its instructions.
        loops: Its loops.
    """

    threads: float
    counts: tuple[PtxCount, ...]
    loops: tuple[PtxLoop, ...]

    @cached_property
    def lines(self) -> Mapping[int, PtxCount]:
        """The counts by line of the PTX.

        Of a function that is inlined in several places, the counts of a line add up. An instruction
        that is executed as several, one behind the other, is counted once; its opcode is `SEVERAL`.
        """
        lines: dict[int, PtxCount] = {}
        before: PtxCount | None = None
        for count in self.counts:
            known = lines.get(count.line)
            if known is None:
                lines[count.line] = count
            elif before is not None and before.line == count.line:
                most = max(known.lanes, count.lanes)
                lines[count.line] = replace(known, opcode=SEVERAL, lanes=most)
            else:
                lines[count.line] = replace(
                    known,
                    lanes=known.lanes + count.lanes,
                    warps=known.warps + count.warps,
                    guarded=known.guarded or count.guarded,
                    slow_lanes=known.slow_lanes + count.slow_lanes,
                    slow_warps=known.slow_warps + count.slow_warps,
                    taken_lanes=known.taken_lanes + count.taken_lanes,
                    taken_warps=known.taken_warps + count.taken_warps,
                    parted_warps=known.parted_warps + count.parted_warps,
                )
            before = count
        return lines


@dataclass(frozen=True)
class Executed:
    """The executions of a program, of the whole grid or of any part of it, as in a `Tally`.

    Attributes:
        lanes: Executions of each instruction by threads.
        warps: Executions of each instruction by warps.
        rounds: How often its loops were entered and repeated.
        rests: What remained behind the rounds of unrolled loops.
        slow_lanes: Executions of each instruction by threads that took a slow path.
        slow_warps: Executions of each instruction by warps with such threads.
        taken_lanes: Executions of each branch by threads that branch; empty where not known.
        taken_warps: Executions of each branch by warps with such threads.
        parted_warps: Executions of each branch by warps with such threads and others.
    """

    lanes: Sequence[float]
    warps: Sequence[float]
    rounds: Sequence[float]
    rests: Sequence[float]
    slow_lanes: Sequence[float]
    slow_warps: Sequence[float]
    taken_lanes: Sequence[float] = ()
    taken_warps: Sequence[float] = ()
    parted_warps: Sequence[float] = ()


@dataclass(frozen=True)
class LoopSpan:
    """Where a loop lies in the PTX.

    Attributes:
        head: Its first instruction.
        end: Its last one.
        entrance: Where it is entered if not at its head, which is then executed once less; else 0.
        number: Its place in `Program.loop_heads`.
        waits: Whether threads wait in it for others.
    """

    head: int
    end: int
    entrance: int
    number: int
    waits: bool


@dataclass(frozen=True)
class PtxStructure:
    """What does not depend on how often a program was executed.

    Attributes:
        program: The program.
        loops: Its loops, inner ones first.
        innermost: The innermost loop that holds each instruction; -1 for none.
    """

    program: Program
    loops: tuple[LoopSpan, ...]
    innermost: tuple[int, ...]

    @classmethod
    def of(cls, program: Program) -> PtxStructure:
        """Find the loops of a program."""
        steps, heads = program.steps, program.loop_heads
        waits = {
            *find_polling_loops(program),
            *(index for index, step in enumerate(steps) if is_partial(step)),
        }
        spans = sorted(
            ((head, ends[-1]) for head, ends in loop_branches(steps).items()),
            key=lambda span: span[1] - span[0],
        )
        innermost = [-1] * len(steps)
        for number, (head, end) in enumerate(spans):
            for index in range(head, end + 1):
                if innermost[index] < 0:
                    innermost[index] = number
        loops = (
            LoopSpan(
                head,
                end,
                _entered_inside(steps, head, end),
                heads.index(head),
                not waits.isdisjoint(range(head, end + 1)),
            )
            for head, end in spans
        )
        return cls(program, tuple(loops), tuple(innermost))


def profile_of_tally(program: Program, tally: Tally) -> PtxProfile:
    """Describe the executions of a whole grid."""
    names = [column.name for column in fields(Executed)]
    return ptx_profile(PtxStructure.of(program), Executed(*(getattr(tally, n) for n in names)))


def ptx_profile(structure: PtxStructure, executed: Executed) -> PtxProfile:
    """Describe the executions of a program, of the whole grid or of any part of it."""
    names = ("taken_lanes", "taken_warps", "parted_warps") if executed.taken_lanes else ()
    branches = {name: getattr(executed, name) for name in names}
    return PtxProfile(
        threads=executed.lanes[0] if executed.lanes else 0.0,
        counts=tuple(
            PtxCount(
                line=step.instruction.ptx_line,
                opcode=step.instruction.opcode,
                lanes=executed.lanes[index],
                warps=executed.warps[index],
                guarded=step.instruction.guard is not None,
                loop=structure.innermost[index],
                increment=_increment(step.instruction),
                slow_lanes=executed.slow_lanes[index],
                slow_warps=executed.slow_warps[index],
                **{name: column[index] for name, column in branches.items()},
            )
            for index, step in enumerate(structure.program.steps)
        ),
        loops=_executed_loops(structure, executed),
    )


def _executed_loops(structure: PtxStructure, executed: Executed) -> tuple[PtxLoop, ...]:
    count, factors = len(structure.loops), len(UNROLLINGS)
    by_loop = np.reshape(executed.rounds, (2, count, 2, factors))
    rests_by_loop = np.reshape(executed.rests, (count, factors, factors))
    loops = []
    for span in structure.loops:
        entrance = span.entrance
        if entrance and (begun := executed.lanes[entrance] - executed.lanes[span.head]) > 0:
            loops.append(PtxLoop(executed.lanes[entrance], begun))
            continue
        by_lanes, by_warps = (
            {unrolled: Rounds(*pair) for unrolled, *pair in zip(UNROLLINGS, *columns, strict=True)}
            for columns in by_loop[:, span.number].tolist()
        )
        remaining = rests_by_loop[span.number].tolist()
        # Of a loop that is left elsewhere than at its end too, the rests are not known.
        all_left = abs(remaining[0][0] - by_warps[1].entries) <= _LEFT_ELSEWHERE * remaining[0][0]
        loops.append(
            PtxLoop(
                by_lanes[1].total,
                by_lanes[1].entries,
                {} if span.waits else by_lanes,
                {} if span.waits else by_warps,
                {
                    (unrolled, smaller): times
                    for unrolled, row in zip(UNROLLINGS, remaining, strict=True)
                    for smaller, times in zip(UNROLLINGS, row, strict=True)
                    if smaller < unrolled
                }
                if all_left and not span.waits
                else {},
            )
        )
    return tuple(loops)


def _entered_inside(steps: Sequence[DecodedInstruction], head: int, end: int) -> int:
    """Where a loop is entered if not at its head, which is then executed once less; else 0."""
    return next((s.target for s in steps[:head] if head < s.target <= end), 0)


def _increment(instruction: Instruction) -> int:
    """What an instruction adds to the register that it reads and writes; 0 if it does not."""
    match instruction.operands:
        case (Register(written), Register(read), Immediate("int", constant)):
            in_place = written == read and instruction.opcode.startswith(_INTEGER_ADDITIONS)
            return constant if in_place else 0
    return 0
