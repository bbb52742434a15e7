"""Projects the executions of PTX instructions on the basic blocks of the machine code.

The emulator knows how often each PTX instruction was executed. ptxas unrolls, peels and hoists, and
merges and removes instructions, so that the counts of a PTX line do not carry over to the
instructions that come from it. But these facts hold for the machine code as a whole:

- As many threads leave a block as enter it.
- The copies of an instruction that ptxas neither duplicates nor removes, over all blocks, are
  executed as often as the PTX instruction: accesses to memory, barriers and floating-point
  arithmetic. Of other instructions the copies are executed at most as often, as a rule.
- A loop is executed at most as often, each time it is entered, as the trip count of the PTX's loop
  allows. Of loops unrolled by different factors, the most unrolled one takes all that it can.

They make a linear program over the edges. Each deviation from the second rule costs what it is
relative to the PTX's count; among equals the fewest instructions are taken. The costs below only
rank the rules: they were chosen by how often a rule fails, not by a kernel's counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from memlab.device.machine_code.flow_graph import ENTRY, EXIT, FlowGraph
from memlab.device.machine_code.linear_program import LinearProgram
from memlab.device.machine_code.ptx_profile import PtxProfile
from memlab.device.properties import WARP_SIZE

Floats = NDArray[np.float64]

_ACCESSES = frozenset(
    (
        "LDG",
        "STG",
        "LD",
        "ST",
        "ATOM",
        "ATOMG",
        "ATOMS",
        "RED",
        "REDG",
        "LDGSTS",
        "BAR",
        "SHFL",
        "MATCH",
    )
)
"""Instructions that ptxas neither duplicates nor removes, as a rule."""
_ARITHMETIC = frozenset(
    (
        "FADD",
        "FMUL",
        "FFMA",
        "FMNMX",
        "DADD",
        "DMUL",
        "DFMA",
        "DMNMX",
        "HADD2",
        "HMUL2",
        "HFMA2",
        "MUFU",
    )
)
"""The same for PTX instructions of floating-point arithmetic."""
_MERGED = frozenset(
    (
        "LDS",
        "STS",
        "LDL",
        "STL",
    )
)
"""Instructions that ptxas merges into wider ones: there may be fewer."""
_PLACELESS = frozenset(
    (
        "BSSY",
        "BSYNC",
        "WARPSYNC",
        "NOP",
        "BRA",
        "MOV",
        "UMOV",
        "CS2R",
        "ULDC",
        "LDC",
        "LDCU",
        "S2R",
        "S2UR",
        "R2UR",
    )
)
"""Instructions that ptxas places by its own needs: they say nothing of the PTX's line."""
_WITHOUT_ARITHMETIC = ("mov.", "ld.", "st.", "selp.", "cvt.")
_ALWAYS = frozenset({"", "PT"})

# The cost of one deviation of the size of the PTX's count.
_EXACT_COST = 1.0
_MERGED_SHORT_COST = 0.1
_OTHER_EXCESS_COST, _OTHER_SHORT_COST = 0.1, 0.001
_UNLIKELY_COST = 5.0  # of all threads taking a way for rare cases, such as a division's slow path
_INSTRUCTION_COST = 0.05  # of as many instructions as the PTX has
_UNROLLED_BONUS = 0.03  # of all iterations in the most unrolled loop
_LEAST_SHARE = 0.03  # deviations count relative to at least this share of the threads
_WHOLE_TOLERANCE = 1e-6  # trips per entry that count as a whole number
_UNEVEN_TRIPS = 4.0  # times the mean trips that a thread may take where threads take unequal ones
_SLACK = 1e-6  # against rounding


@dataclass(frozen=True)
class Executions:
    """How often the parts of machine code are executed.

    Attributes:
        block_lanes: Executions of each block by threads, shape (blocks,).
        block_warps: Executions of each block by warps, shape (blocks,).
        edge_lanes: Threads that take each edge, shape (edges,).
        edge_warps: Warps of which some thread takes each edge, shape (edges,).
        lanes: Executions of each instruction by threads, with those whose predicate is off, shape
            (instructions,).
        warps: Executions of each instruction by warps, shape (instructions,).
    """

    block_lanes: Floats
    block_warps: Floats
    edge_lanes: Floats
    edge_warps: Floats
    lanes: Floats
    warps: Floats


@dataclass(frozen=True)
class _Anchor:
    """The copies of an instruction, which together should be executed as often as in the PTX."""

    copies: tuple[tuple[int, int], ...]  # by block
    lanes: float


@dataclass(frozen=True)
class _LoopLimit:
    """How often the header of a loop is executed at most: in all, and each time it is entered."""

    header: int
    entering: frozenset[int]  # blocks
    most: float
    most_per_entry: float
    unrolled: int
    iterations: float  # of the PTX's loop


def project(graph: FlowGraph, profile: PtxProfile) -> Executions | None:
    """Project the executions of PTX instructions on the blocks and edges.

    Args:
        graph: The flow of the machine code.
        profile: The executions of the PTX, of the whole grid or of any part of it.

    Returns:
        The executions; None if the machine code cannot be brought into agreement with the PTX.
    """
    blocks = len(graph.blocks)
    sizes = [block.stop - block.start for block in graph.blocks]
    if not profile.threads:
        edge_lanes = np.zeros(len(graph.edges))
    else:
        found = _edge_lanes(graph, profile)
        if found is None:
            return None
        edge_lanes = found
    block_lanes = np.zeros(blocks)
    for edge, value in zip(graph.edges, edge_lanes, strict=True):
        if edge.destination >= 0:
            block_lanes[edge.destination] += value
    for call in graph.calls:
        block_lanes[call.function] += block_lanes[call.block]
    block_warps = _block_warps(graph, profile, block_lanes)
    edge_warps = _edge_warps(graph, block_lanes, block_warps, edge_lanes)
    warps = np.repeat(block_warps, sizes)
    for block, (first, _) in enumerate((b.start, b.stop) for b in graph.blocks):
        if graph.code.instructions[first].name == "BSYNC":  # every group that arrives executes it
            arriving = sum(
                value
                for edge, value in zip(graph.edges, edge_warps, strict=True)
                if edge.destination == block
            )
            warps[first] = min(max(arriving, block_warps[block]), block_lanes[block])
    lanes = np.repeat(block_lanes, sizes)
    return Executions(block_lanes, block_warps, edge_lanes, edge_warps, lanes, warps)


def _edge_lanes(graph: FlowGraph, profile: PtxProfile) -> Floats | None:
    """The threads on each edge: the solution of the linear program, in shares of all threads."""
    threads = profile.threads
    program = LinearProgram()
    for _ in graph.edges:
        program.add_variable()
    inward: dict[int, list[int]] = defaultdict(list)
    outward: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(graph.edges):
        inward[edge.destination].append(number)
        outward[edge.source].append(number)
    entering = {block: list(inward[block]) for block in range(len(graph.blocks))}
    for call in graph.calls:
        entering[call.function] += inward[call.block]

    for number in outward[ENTRY]:
        program.require_equal({number: 1.0}, 1.0)
    per_instruction = _INSTRUCTION_COST * threads / max(sum(c.lanes for c in profile.counts), 1)
    unlikely = _unlikely_blocks(graph)
    for block, numbers in entering.items():
        size = graph.blocks[block].stop - graph.blocks[block].start
        flow: dict[int, float] = defaultdict(float)
        for number in numbers:
            flow[number] += 1.0
            rare = _UNLIKELY_COST if block in unlikely else 0.0
            program.add_cost(number, per_instruction * size + rare)
        for number in outward[block]:
            flow[number] -= 1.0
        program.require_equal(flow, 0.0)
    for limit in _loop_limits(graph, profile):
        row = dict.fromkeys(inward[limit.header], 1.0)
        program.require_at_most(row, limit.most / threads * (1 + _SLACK))
        per_entry = limit.most_per_entry * (1 + _SLACK)
        program.require_at_most(
            {n: 1.0 - per_entry * (graph.edges[n].source in limit.entering) for n in row}, 0.0
        )
        if limit.iterations:
            bonus = _UNROLLED_BONUS * (limit.unrolled - 1) * threads / limit.iterations
            for number in row:
                program.add_cost(number, -bonus)
    for anchor, (short_cost, excess_cost) in _anchors(graph, profile).items():
        row = defaultdict(float)
        for block, copies in anchor.copies:
            for number in entering[block]:
                row[number] += copies
        program.prefer_equal(row, anchor.lanes / threads, short_cost, excess_cost)
    solution = program.solve()
    return None if solution is None else solution[: len(graph.edges)] * threads


def _anchors(graph: FlowGraph, profile: PtxProfile) -> dict[_Anchor, tuple[float, float]]:
    """What the PTX's counts say of the blocks, and what it costs to fall short and to exceed."""
    opcodes: dict[int, str] = {}
    lanes: dict[int, float] = defaultdict(float)
    guarded: set[int] = set()
    for count in profile.counts:
        opcodes[count.line] = count.opcode
        lanes[count.line] += count.lanes / profile.threads
        guarded |= {count.line} if count.guarded else set()
    found: dict[int, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    typical: list[float] = []
    for block in range(len(graph.blocks)):
        known = []
        for step in graph.instructions(block):
            line = step.ptx_line
            if line in opcodes and step.predicate in _ALWAYS and step.name not in _PLACELESS:
                known.append(lanes[line])
                found[line][step.opcode][block] += 1
        typical.append(median_low(known) if known else 0.0)
    anchors: dict[_Anchor, tuple[float, float]] = {}
    for line, by_opcode in found.items():
        if line in guarded:
            continue
        kind, copies = _counted_copies(opcodes[line], by_opcode)
        short_cost, excess_cost = {
            "exact": (_EXACT_COST, _EXACT_COST),
            "merged": (_MERGED_SHORT_COST, _EXACT_COST),
            "other": (_OTHER_SHORT_COST, _OTHER_EXCESS_COST),
        }[kind]
        scale = max(lanes[line], *(typical[block] for block in copies), _LEAST_SHARE)
        # Lines that say the same are one constraint: it keeps the linear program small.
        key = _Anchor(tuple(sorted(copies.items())), lanes[line] * profile.threads)
        short, excess = anchors.get(key, (0.0, 0.0))
        anchors[key] = short + short_cost / scale, excess + excess_cost / scale
    return anchors


def _counted_copies(
    ptx_opcode: str, by_opcode: dict[str, Counter[int]]
) -> tuple[str, Counter[int]]:
    """The instruction of a PTX line that counts its executions best, and its copies by block.

    The rarest one: a line may take several instructions, some of them more than once.
    """
    floats = ".f" in ptx_opcode or ".bf" in ptx_opcode
    arithmetic = floats and not ptx_opcode.startswith(_WITHOUT_ARITHMETIC)
    exact = _ACCESSES | _ARITHMETIC if arithmetic else _ACCESSES
    ranked = [
        (
            0 if name in exact else 1 if name in _MERGED else 2,
            sum(copies.values()),
            opcode,
        )
        for opcode, copies in by_opcode.items()
        for name in [opcode.partition(".")[0]]
    ]
    rank, _, opcode = min(ranked)
    copies = by_opcode[opcode]
    if rank < 2:
        return ("exact", "merged")[rank], copies
    least = min(copies.values())  # it may take several each time
    return "other", Counter({block: number // least for block, number in copies.items()})


def _loop_limits(graph: FlowGraph, profile: PtxProfile) -> list[_LoopLimit]:
    """The limits that the trip counts of the PTX's loops set for those of the machine code.

    The branch that closes a loop comes from the one that closes the loop in the PTX.
    """
    loop_of = {count.line: count.loop for count in profile.counts}
    limits = []
    for header, blocks in graph.loops:
        into = [edge.source for edge in graph.edges if edge.destination == header]
        closing = [block for block in into if block in blocks]
        found = {loop_of.get(graph.instructions(block)[-1].ptx_line, -1) for block in closing}
        if len(found) != 1 or -1 in found:
            continue
        inner = {b for h, other in graph.loops if h in blocks and h != header for b in other}
        copies = Counter(
            step.ptx_line
            for block in blocks - inner
            for step in graph.instructions(block)
            if step.name in _ACCESSES | _ARITHMETIC | _MERGED
            and loop_of.get(step.ptx_line, -1) in found
        )
        unrolled = median_low(copies.values()) if copies else 1
        loop = profile.loops[found.pop()]
        if loop.iterations and not loop.entries:  # its entries are not known
            continue
        trips, whole = loop.trips, round(loop.trips)
        if abs(trips - whole) < _WHOLE_TOLERANCE:
            rounds, per_entry = float(whole // unrolled), float(-(-whole // unrolled))
        else:  # of unequal trip counts, half of a round remains in the mean
            rest = (unrolled - 1) / 2 if trips > unrolled else 0.0
            rounds, per_entry = (trips - rest) / unrolled, _UNEVEN_TRIPS * trips / unrolled + 1
        limits.append(
            _LoopLimit(
                header,
                frozenset(into) - blocks,
                rounds * loop.entries,
                per_entry,
                unrolled,
                loop.iterations,
            )
        )
    return limits


def _unlikely_blocks(graph: FlowGraph) -> set[int]:
    """Blocks for rare cases: calls of the compiler's own functions, and diverged warps."""
    names = graph.code.functions
    unlikely = {
        call.block
        for call in graph.calls
        if "__internal_" in names.get(graph.instructions(call.function)[0].address, "")
    }
    for edge in graph.edges:
        if edge.source >= 0 and edge.destination not in (EXIT, edge.source + 1):
            diverged = graph.instructions(edge.source)[-1].opcode.startswith("BRA.DIV")
            unlikely |= {edge.destination} if diverged else set()
    return unlikely


def _block_warps(graph: FlowGraph, profile: PtxProfile, block_lanes: Floats) -> Floats:
    """The executions by warps: a block has as many threads a warp as its PTX instructions."""
    ratio = {
        count.line: count.warps / count.lanes
        for count in profile.counts
        if count.lanes and not count.guarded
    }
    warps = np.zeros(len(graph.blocks))
    for block in range(len(graph.blocks)):
        known = [
            ratio[step.ptx_line]
            for step in graph.instructions(block)
            if step.ptx_line in ratio and step.predicate in _ALWAYS and step.name not in _PLACELESS
        ]
        warps[block] = block_lanes[block] * (median_low(known) if known else 1 / WARP_SIZE)
    return warps


def _edge_warps(
    graph: FlowGraph, block_lanes: Floats, block_warps: Floats, edge_lanes: Floats
) -> Floats:
    """The warps of which some thread takes each edge.

    Where a branch sends full warps one way, the other warps go the other way. Where it sends parts
    of warps, the other parts go the other way.
    """
    outward: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(graph.edges):
        outward[edge.source].append(number)
    warps = np.zeros(len(graph.edges))
    for block, numbers in outward.items():
        for number in numbers:
            if block == ENTRY:
                warps[number] = block_warps[0]
            elif len(numbers) == 1:
                warps[number] = block_warps[block]
            elif block_lanes[block]:
                others = [other for other in numbers if other != number]
                taken = sum(
                    edge_lanes[other]
                    * _density(graph.edges[other].destination, block, block_lanes, block_warps)
                    for other in others
                )
                full = block_warps[block] / block_lanes[block]
                lanes = sum(edge_lanes[other] for other in others)
                diverged = taken > lanes * full * (1 + _SLACK)
                left = block_warps[block] if diverged else block_warps[block] - taken
                warps[number] = min(max(left, edge_lanes[number] / WARP_SIZE), edge_lanes[number])
    return warps


def _density(destination: int, source: int, block_lanes: Floats, block_warps: Floats) -> float:
    """The warps per thread behind a branch; where its threads end, those before it."""
    block = destination if destination >= 0 and block_lanes[destination] else source
    return float(block_warps[block] / block_lanes[block])
