"""How often the instructions and loops of the PTX were executed, as the projection needs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, TypeAlias

from memlab.device.emulator.program.code_layout import loop_branches, successors
from memlab.device.emulator.program.program import Program
from memlab.device.machine_code.linear_program import LinearProgram

_Edge: TypeAlias = tuple[int, int]  # the last instruction of a block, and the first of another
_End: TypeAlias = tuple[Literal["in", "out"], int]  # a block's first or last instruction

_ENTRY_BONUS = 0.1  # of all threads entering a loop; to miss a total by as many costs 1
_MOST_OPEN_FLOWS = 1000


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
    """

    line: int
    opcode: str
    lanes: float
    warps: float
    guarded: bool
    loop: int


@dataclass(frozen=True)
class PtxLoop:
    """A loop of the PTX.

    Attributes:
        iterations: How often threads executed it.
        entries: How often threads entered it.
    """

    iterations: float
    entries: float

    @property
    def trips(self) -> float:
        """Its iterations each time that a thread enters it; 0 if none does."""
        return self.iterations / self.entries if self.entries else 0.0


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


def ptx_profile(program: Program, lanes: Sequence[float], warps: Sequence[float]) -> PtxProfile:
    """Describe the executions of a program, of the whole grid or of any part of it.

    Args:
        program: The program.
        lanes: Executions of each instruction by threads.
        warps: Executions of each instruction by warps.
    """
    steps = program.steps
    spans = sorted(
        ((head, ends[-1]) for head, ends in loop_branches(steps).items()),
        key=lambda span: span[1] - span[0],
    )
    innermost = [-1] * len(steps)
    for number, (head, end) in enumerate(spans):
        for index in range(head, end + 1):
            if innermost[index] < 0:
                innermost[index] = number
    flows = _branch_flows(program, lanes, spans)
    loops = []
    for head, end in spans:
        entries = sum(
            flow
            for (source, place), flow in flows.items()
            if place == head and not head <= source <= end
        )
        if head == 0:
            entries += lanes[0]
        loops.append(PtxLoop(lanes[head], min(entries, lanes[head])))
    return PtxProfile(
        threads=lanes[0] if lanes else 0.0,
        counts=tuple(
            PtxCount(
                line=step.instruction.ptx_line,
                opcode=step.instruction.opcode,
                lanes=lanes[index],
                warps=warps[index],
                guarded=step.instruction.guard is not None,
                loop=innermost[index],
            )
            for index, step in enumerate(steps)
        ),
        loops=tuple(loops),
    )


def _branch_flows(
    program: Program, lanes: Sequence[float], spans: Sequence[tuple[int, int]]
) -> dict[_Edge, float]:
    """The threads that go from the end of one basic block to the start of another.

    As many threads leave a block as end it, and as many enter one as begin it: an unknown flow
    follows wherever it is the only one.
    """
    steps = program.steps
    starts = {0}
    for index in range(len(steps)):
        following = successors(steps, index)
        if following != [index + 1]:
            starts.update(following, (index + 1,))
    blocks = list(pairwise(sorted({*starts, len(steps)})))
    totals: dict[_End, float] = {}
    members: dict[_End, list[_Edge]] = defaultdict(list)
    for start, stop in blocks:
        end = stop - 1
        totals["in", start] = _threads(program, lanes, range(start, stop))
        totals["out", end] = _threads(program, lanes, range(end, start - 1, -1))
        for place in dict.fromkeys(successors(steps, end)):
            members["out", end].append((end, place))
            members["in", place].append((end, place))
    totals["in", 0] -= lanes[0]
    known: dict[_Edge, float] = {}
    waiting = list(members)
    while waiting:
        key = waiting.pop()
        unknown = [edge for edge in members[key] if edge not in known]
        if len(unknown) == 1 and key in totals:
            (edge,) = unknown
            known[edge] = max(totals[key] - sum(known.get(other, 0.0) for other in members[key]), 0)
            waiting += [("out", edge[0]), ("in", edge[1])]
    _add_open_flows(known, totals, members, spans)
    return known


def _add_open_flows(
    known: dict[_Edge, float],
    totals: Mapping[_End, float],
    members: Mapping[_End, list[_Edge]],
    spans: Sequence[tuple[int, int]],
) -> None:
    """Add the flows that the totals leave open: as many threads as can be enter each loop.

    A thread that comes to a loop enters it as a rule, and a loop that few threads entered would
    have to repeat more often for them.
    """
    edges = [
        edge for edge in dict.fromkeys(chain.from_iterable(members.values())) if edge not in known
    ]
    ends = [end for end in totals if any(edge not in known for edge in members[end])]
    rest = {end: totals[end] - sum(known.get(edge, 0.0) for edge in members[end]) for end in ends}
    scale = max(rest.values(), default=0.0)
    if not 0 < len(edges) <= _MOST_OPEN_FLOWS or scale <= 0:
        return
    program = LinearProgram()
    numbers = {edge: program.add_variable() for edge in edges}
    for head, last in spans:
        for edge, number in numbers.items():
            if edge[1] == head and not head <= edge[0] <= last:
                program.add_cost(number, -_ENTRY_BONUS)
    for end in ends:
        row = {numbers[edge]: 1.0 for edge in members[end] if edge in numbers}
        program.prefer_equal(row, rest[end] / scale, 1.0, 1.0)
    flows = program.solve()
    if flows is not None:
        known.update((edge, float(flows[number]) * scale) for edge, number in numbers.items())


def _threads(program: Program, lanes: Sequence[float], indices: Iterable[int]) -> float:
    """The threads at the first of some instructions; a guard hides those that it keeps off."""
    for index in indices:
        step = program.steps[index]
        if step.instruction.guard is None or step.row.kind == "branch":
            return lanes[index]
    return 0.0
