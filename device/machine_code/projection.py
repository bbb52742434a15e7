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

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.asynchronous.warpgroup import is_product
from memlab.device.machine_code.flow_graph import ENTRY, EXIT, FlowGraph
from memlab.device.machine_code.linear_program import LinearProgram
from memlab.device.machine_code.ptx_profile import PtxCount, PtxProfile
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

_TENSOR = ("HMMA", "IMMA", "BMMA", "DMMA", "QMMA")
_WARPGROUP = ("HGMMA", "IGMMA", "QGMMA")
"""Products of warpgroups, one for each `wgmma`, which the emulator executes as several."""
_PRODUCTS = -1
"""Stands for the line of all of them."""
_PTX_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_MACHINE_SHAPE = re.compile(r"\.(8|16)x?8x?(\d+)\b")
_SEVERAL = "several"
_RETRIED = ("atom.", "red.")  # a loop in the machine code, until no other thread interferes

_CLUSTER_BARRIER = ("UCGABAR_ARV", "UCGABAR_WAIT")
"""The barrier of a cluster. The machine code of a kernel that declares no cluster asks whether the
launch has one, and otherwise waits for the block alone; the PTX does not show this branch."""

# What a deviation of the size of the PTX's count costs: to fall short, and to exceed.
_ACCESS_COSTS = 5.0, 5.0
_ARITHMETIC_COSTS = 0.5, 1.0  # it may be moved to where its result is needed
_MERGED_COSTS = 0.1, 1.0
_OTHER_COSTS = 0.01, 0.1
_COSTS = (_ACCESS_COSTS, _ARITHMETIC_COSTS, _MERGED_COSTS, _OTHER_COSTS)
_UNLIKELY_COST = 5.0  # of all threads taking a way for rare cases, such as a division's slow path
_INSTRUCTION_COST = 0.005  # of as many instructions as the PTX has
_UNROLLED_BONUS = 0.3  # of all iterations in the most unrolled code
_LEAST_SHARE = 0.03  # deviations count relative to at least this share of the threads
_WHOLE_TOLERANCE = 1e-6  # trips per entry that count as a whole number
_UNEVEN_COST = 0.02  # of as many rounds, beyond those of even trips, as there are threads
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

    copies: tuple[tuple[int, float], ...]  # by block
    lanes: float


@dataclass(frozen=True)
class _LoopLimit:
    """How often the header of a loop is executed at most: in all, and each time it is entered.

    `usual_per_entry` is the most where all threads take as many trips as the mean.
    """

    header: int
    entering: frozenset[int]  # blocks
    most: float
    most_per_entry: float
    usual_per_entry: float


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
    block_warps = _block_warps(graph, profile, block_lanes, edge_lanes)
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
        usual = limit.usual_per_entry * (1 + _SLACK)
        program.prefer_at_most(
            {n: 1.0 - usual * (graph.edges[n].source in limit.entering) for n in row},
            0.0,
            _UNEVEN_COST,
        )
    for block, saved in _unrolled_shares(graph, profile).items():
        for number in entering[block]:
            program.add_cost(number, -_UNROLLED_BONUS * saved * threads)
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
    lines = _lines(profile)
    lanes = {line: whole.lanes / profile.threads for line, whole in lines.items()}
    found: dict[int, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    most: list[float] = []
    products: Counter[int] = Counter()
    for block in range(len(graph.blocks)):
        known = []
        for step in graph.instructions(block):
            line = step.ptx_line
            if step.name in _WARPGROUP:
                products[block] += 1
            elif line in lines and step.predicate in _ALWAYS and step.name not in _PLACELESS:
                known.append(lanes[line])
                found[line][step.opcode][block] += 1
        most.append(max(known, default=0.0))
    anchors: dict[_Anchor, tuple[float, float]] = {}
    for line, by_opcode in found.items():
        if lines[line].guarded:
            continue
        (short_cost, excess_cost), copies = _counted_copies(lines[line], by_opcode)
        # What exceeds its count by far was moved; no block is executed more than its busiest line.
        own = max(lanes[line], _LEAST_SHARE)
        busiest = max(own, *(most[block] for block in copies))
        # Lines that say the same are one constraint: it keeps the linear program small.
        key = _Anchor(tuple(sorted(copies.items())), lanes[line] * profile.threads)
        short, excess = anchors.get(key, (0.0, 0.0))
        anchors[key] = short + short_cost / own, excess + excess_cost / busiest
    if products:  # ptxas gives them the lines of others around them
        whole = sum(count.lanes for count in profile.counts if is_product(count.opcode))
        places = tuple((block, float(number)) for block, number in sorted(products.items()))
        cost = 1 / max(whole / profile.threads, _LEAST_SHARE)
        anchors[_Anchor(places, whole)] = (cost * _COSTS[0][0], cost * _COSTS[0][1])
    return anchors


def _lines(profile: PtxProfile) -> dict[int, PtxCount]:
    """The counts by line of the PTX.

    Of a function that is inlined in several places, the counts of a line add up. An instruction
    that is executed as several, one behind the other, is counted once; it is marked by its opcode.
    """
    lines: dict[int, PtxCount] = {}
    before: PtxCount | None = None
    for count in profile.counts:
        known = lines.get(count.line)
        if known is None:
            lines[count.line] = count
        elif before is not None and before.line == count.line:
            most = max(known.lanes, count.lanes)
            lines[count.line] = replace(known, opcode=_SEVERAL, lanes=most)
        else:
            lines[count.line] = replace(
                known,
                lanes=known.lanes + count.lanes,
                warps=known.warps + count.warps,
                guarded=known.guarded or count.guarded,
            )
        before = count
    return lines


def _counted_copies(
    count: PtxCount, by_opcode: Mapping[str, Mapping[int, int]]
) -> tuple[tuple[float, float], dict[int, float]]:
    """How the machine code of a PTX line counts its executions.

    Returns:
        What it costs to fall short and to exceed, and the executions of the line for each
        execution of a block. They are counted by the rarest instruction: a line may take several
        instructions, some of them more than once.
    """
    opcode = min(by_opcode, key=lambda opcode: _rank(count, opcode, by_opcode[opcode]))
    rank, _, _ = _rank(count, opcode, by_opcode[opcode])
    copies = {block: float(number) for block, number in by_opcode[opcode].items()}
    costs = _COSTS[rank]
    per_execution = min(copies.values()) if costs is _OTHER_COSTS else 1.0
    if opcode.startswith(_TENSOR):
        per_execution = _tensor_expansion(count.opcode, opcode) or min(copies.values())
    return costs, {block: number / per_execution for block, number in copies.items()}


def _rank(count: PtxCount, opcode: str, copies: Mapping[int, int]) -> tuple[int, int, str]:
    """The order in which the instructions of a line are preferred to count it."""
    name, times = opcode.partition(".")[0], sum(copies.values())
    floats = ".f" in count.opcode or ".bf" in count.opcode
    if count.opcode == _SEVERAL:
        return 3, times, opcode
    if name in _CLUSTER_BARRIER:
        return 0, 0, opcode
    if name in _ACCESSES or (name in _TENSOR and _tensor_expansion(count.opcode, opcode)):
        return 0, times, opcode
    if name in _ARITHMETIC and floats and not count.opcode.startswith(_WITHOUT_ARITHMETIC):
        return 1, times, opcode
    return (2 if name in _MERGED else 3), times, opcode


def _tensor_expansion(ptx_opcode: str, opcode: str) -> float:
    """The instructions of the tensor cores that one `mma` takes, from their shapes; 0 if unknown.

    `HMMA.16816` multiplies 16 x 8 x 16, `mma.sync.aligned.m16n8k16` as well, and `DMMA.8x8x4`
    8 x 8 x 4.
    """
    asked, shape = _PTX_SHAPE.search(ptx_opcode), _MACHINE_SHAPE.search(opcode)
    if not asked or not shape:
        return 0.0
    m, n, k = (int(side) for side in asked.groups())
    return m * n * k / (int(shape[1]) * 8 * int(shape[2]))


def _products_by_loop(profile: PtxProfile) -> Counter[int]:
    """How many products of warpgroups the body of each loop of the PTX has."""
    return Counter(count.loop for count in profile.counts if is_product(count.opcode))


def _unrolling(
    graph: FlowGraph,
    blocks: Iterable[int],
    lines: Mapping[int, PtxCount],
    products: Mapping[int, int],
) -> dict[int, int]:
    """How often blocks hold the body of each loop of the PTX: the median over its instructions."""
    copies: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for block in blocks:
        for step in graph.instructions(block):
            count = lines.get(step.ptx_line)
            if count is None or count.loop < 0:
                continue
            if step.name in _WARPGROUP:
                copies[count.loop][_PRODUCTS] += 1.0 / max(products.get(count.loop, 0), 1)
            elif count.opcode == _SEVERAL:
                continue
            elif step.name in _ACCESSES | _ARITHMETIC | _MERGED:
                copies[count.loop][count.line] += 1.0
            elif step.name in _TENSOR and (taken := _tensor_expansion(count.opcode, step.opcode)):
                copies[count.loop][count.line] += 1.0 / taken
    return {loop: max(round(median_low(c.values())), 1) for loop, c in copies.items()}


def _loop_limits(graph: FlowGraph, profile: PtxProfile) -> list[_LoopLimit]:
    """The limits that the trip counts of the PTX's loops set for those of the machine code.

    The branch that closes a loop comes from the one that closes the loop in the PTX.
    """
    lines = _lines(profile)
    loop_of = {
        line: count.loop for line, count in lines.items() if not count.opcode.startswith(_RETRIED)
    }
    limits, products = [], _products_by_loop(profile)
    for header, blocks in graph.loops:
        into = [edge.source for edge in graph.edges if edge.destination == header]
        closing = [block for block in into if block in blocks]
        found = {loop_of.get(graph.instructions(block)[-1].ptx_line, -1) for block in closing}
        if len(found) != 1 or -1 in found:
            continue
        inner = {b for h, other in graph.loops if h in blocks and h != header for b in other}
        number = found.pop()
        unrolled = _unrolling(graph, blocks - inner, lines, products).get(number, 1)
        loop = profile.loops[number]
        if loop.iterations and not loop.entries:  # its entries are not known
            continue
        trips, whole = loop.trips, round(loop.trips)
        if abs(trips - whole) < _WHOLE_TOLERANCE:
            rounds = per_entry = usual = float(whole // unrolled)
        else:  # of unequal trip counts, half of a round remains in the mean
            rest = (unrolled - 1) / 2 if trips > unrolled else 0.0
            rounds, per_entry = (trips - rest) / unrolled, _UNEVEN_TRIPS * trips / unrolled + 1
            usual = float(math.ceil(trips / unrolled))
        limits.append(
            _LoopLimit(
                header,
                frozenset(into) - blocks,
                rounds * loop.entries,
                per_entry,
                usual,
            )
        )
    return limits


def _unrolled_shares(graph: FlowGraph, profile: PtxProfile) -> dict[int, float]:
    """The share of a loop's iterations that each execution of an unrolled block saves."""
    lines, products = _lines(profile), _products_by_loop(profile)
    shares: dict[int, float] = {}
    for block in range(len(graph.blocks)):
        for number, unrolled in _unrolling(graph, [block], lines, products).items():
            if profile.loops[number].iterations:
                share = (unrolled - 1) / profile.loops[number].iterations
                shares[block] = max(shares.get(block, 0.0), share)
    return shares


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


def _block_warps(
    graph: FlowGraph, profile: PtxProfile, block_lanes: Floats, edge_lanes: Floats
) -> Floats:
    """The executions by warps: a block has as many threads a warp as its PTX instructions."""
    ratio = {
        count.line: count.warps / count.lanes
        for count in profile.counts
        if count.lanes and not count.guarded
    }
    heaviest: dict[int, tuple[float, int]] = {}
    for edge, lanes in zip(graph.edges, edge_lanes.tolist(), strict=True):
        heaviest[edge.destination] = max(
            heaviest.get(edge.destination, (0.0, ENTRY)), (lanes, edge.source)
        )
    density = np.full(len(graph.blocks), 1 / WARP_SIZE)
    for block in range(len(graph.blocks)):
        known = [
            ratio[step.ptx_line]
            for step in graph.instructions(block)
            if step.ptx_line in ratio and step.predicate in _ALWAYS and step.name not in _PLACELESS
        ]
        _, before = heaviest.get(block, (0.0, ENTRY))
        if known:
            density[block] = median_low(known)
        elif before >= 0:  # as many threads a warp as most come with
            density[block] = density[before]
    warps: Floats = block_lanes * density
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
