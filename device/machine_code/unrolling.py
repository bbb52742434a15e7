"""How often the machine code holds the bodies of the PTX's loops, and what limits its executions.

ptxas unrolls a loop by some factors, each in code of its own: in a loop, or in blocks for the trips
that remain. Each time a thread enters the PTX's loop and makes `t` trips, code that holds the body
`k` times is executed at most `t // k` times, together with what holds it more often.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from memlab.device.emulator.isa.asynchronous.warpgroup import is_product
from memlab.device.machine_code.flow_graph import EXIT, FlowGraph
from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.machine_code.ptx_profile import SEVERAL, PtxCount, PtxLoop, PtxProfile

ACCESSES = frozenset(
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
"""The same for PTX instructions of floating-point arithmetic: see `is_arithmetic`."""
PLACELESS = frozenset(
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
MERGED = frozenset(
    (
        "LDS",
        "STS",
        "LDL",
        "STL",
    )
)
"""Instructions that ptxas merges into wider ones: there may be fewer."""
_COUNTED = ACCESSES | MERGED | {"MUFU"}
"""What shows how often code holds the body of a loop, with arithmetic: of division one `MUFU`."""
TENSOR = ("HMMA", "IMMA", "BMMA", "DMMA", "QMMA")
WARPGROUP = ("HGMMA", "IGMMA", "QGMMA")
"""Products of warpgroups, one for each `wgmma`, which the emulator executes as several."""
_PRODUCTS = -1
"""Stands for the line of all of them."""
ADDITIONS = ("IADD", "VIADD", "UIADD")
"""Instructions, by the beginnings of their names, that move counters of loops on."""
_ZEROS = frozenset({"RZ", "URZ"})
_PREDICATE = re.compile(r"!?U?P[\dT]")
_REGISTER_BITS = 32
_RETRIED = ("atom.", "red.")  # a loop in the machine code, until no other thread interferes
_PTX_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_MACHINE_SHAPE = re.compile(r"\.(8|16)x?8x?(\d+)\b")
_UNEVEN_TRIPS = 4.0  # times the mean trips that a thread may take where threads take unequal ones


@dataclass(frozen=True)
class UnrolledCode:
    """Code that holds the body of a loop of the PTX once or several times.

    Attributes:
        block: The header of a loop of the machine code, or a block outside of such loops.
        loop: The loop of the PTX.
        copies: How often it holds the body.
        entering: The blocks from which the loop of the machine code is entered; None of a block.
    """

    block: int
    loop: int
    copies: int
    entering: frozenset[int] | None = None


@dataclass(frozen=True)
class LoopLimit:
    """How often the header of a loop is executed at most: in all, and each time it is entered.

    `usual_per_entry` is the most where all threads that enter it take as many trips as the mean, as
    many of them as they can in code that holds the body more often.
    """

    header: int
    entering: frozenset[int]  # blocks
    most: float
    most_per_entry: float
    usual_per_entry: float


@dataclass(frozen=True)
class RoundLimit:
    """How often blocks are executed at most, each with the rounds of an unrolled loop in it."""

    rounds: Mapping[int, int]  # by block
    most: float


def unrolled_code(graph: FlowGraph, profile: PtxProfile) -> list[UnrolledCode]:
    """Where the machine code holds the bodies of the PTX's loops.

    The branch that closes a loop comes from the one that closes the loop in the PTX.
    """
    lines, products, rare = profile.lines, _products_by_loop(profile), graph.rare_blocks
    loop_of = {
        line: count.loop for line, count in lines.items() if not count.opcode.startswith(_RETRIED)
    }
    retried = lines.keys() - loop_of.keys()
    found: list[UnrolledCode] = []
    within: dict[int, set[int]] = defaultdict(set)
    for header, blocks in graph.loops:
        into = [edge.source for edge in graph.edges if edge.destination == header]
        closing = [block for block in into if block in blocks]
        ends = {graph.instructions(block)[-1].ptx_line for block in closing}
        # A loop may begin with one that is repeated until it succeeds.
        closed = {loop_of.get(line, -1) for line in ends - retried}
        if len(closed) != 1 or -1 in closed:
            continue
        inner = {b for h, other in graph.loops if h in blocks and h != header for b in other}
        loop = closed.pop()
        copies = _copies(graph, blocks - inner, lines, products, rare).get(loop, 1)
        found.append(UnrolledCode(header, loop, copies, frozenset(into) - blocks))
        within[loop] |= blocks
    for block in range(len(graph.blocks)):
        for loop, copies in _copies(graph, [block], lines, products, rare).items():
            if block not in within[loop]:
                found.append(UnrolledCode(block, loop, copies))
    return found


def loop_limits(codes: Sequence[UnrolledCode], profile: PtxProfile) -> list[LoopLimit]:
    """The limits that the trip counts of the PTX's loops set for those of the machine code."""
    limits = []
    for code in codes:
        loop, copies = profile.loops[code.loop], code.copies
        if code.entering is None or (loop.iterations and not loop.entries):
            continue
        trips, rounds = loop.trips, loop.rounds_unrolled(copies)
        if loop.is_even:
            per_entry = usual = float(round(trips) // copies)
        else:
            per_entry = _UNEVEN_TRIPS * trips / copies + 1 if rounds else 0.0
            usual = float(math.ceil(trips / copies))
            if copies in loop.unrolled and loop.unrolled[copies].entries:
                usual = loop.unrolled[copies].total / loop.unrolled[copies].entries
        usual = min(usual, _remaining_trips(code, codes, loop) // copies)
        limits.append(LoopLimit(code.block, code.entering, rounds, per_entry, usual))
    return limits


def _remaining_trips(code: UnrolledCode, codes: Iterable[UnrolledCode], loop: PtxLoop) -> float:
    """The trips that code which holds the body more often leaves: of unequal trips, at most.

    A loop of the machine code leaves fewer trips than one execution of it makes. A block is
    executed once, if there are enough of them.
    """
    longer = {(other.copies, other.entering is not None) for other in codes if _holds(other, code)}
    left = float(round(loop.trips) if loop.is_even else loop.iterations)
    for copies, repeats in sorted(longer, reverse=True):
        if loop.is_even:
            left -= copies * (left // copies if repeats else left >= copies)
        else:
            fewer = min(left, copies - 1.0)
            left = fewer if repeats else max(left - copies, fewer)
    return left


def _holds(longer: UnrolledCode, code: UnrolledCode) -> bool:
    """Whether code holds more copies of the same loop than another one."""
    return longer.loop == code.loop and longer.copies > code.copies


def round_limits(codes: Iterable[UnrolledCode], profile: PtxProfile) -> list[RoundLimit]:
    """The limits that the recorded trips of the PTX's loops set for all code that unrolls them."""
    by_loop: dict[int, list[UnrolledCode]] = defaultdict(list)
    for code in codes:
        by_loop[code.loop].append(code)
    return [
        RoundLimit(
            {code.block: code.copies // unrolled for code in found if code.copies >= unrolled},
            rounds.total,
        )
        for loop, found in by_loop.items()
        for unrolled, rounds in profile.loops[loop].unrolled.items()
        if any(code.copies == unrolled > 1 for code in found)
    ]


def last_trips(
    graph: FlowGraph, profile: PtxProfile, codes: Iterable[UnrolledCode]
) -> dict[int, int]:
    """Blocks for the last trip each time that a loop is entered, by the loop.

    ptxas peels the last trip of some loops, behind which nothing needs the counter. Such a block
    holds the body once and does not move the counter on. Another one must do both: without it, the
    block may be for a trip that remains behind unrolled ones.
    """
    lines = profile.lines
    last: dict[int, list[int]] = defaultdict(list)
    single = set()
    for code in codes:
        if code.copies == 1 and code.entering is None:
            moved = counted_trips(graph, [code.block], lines)
            if any(lines[line].loop == code.loop for line in moved):
                single.add(code.loop)
            else:
                last[code.loop].append(code.block)
    return {loop: blocks[0] for loop, blocks in last.items() if loop in single and len(blocks) == 1}


def impossible_entries(graph: FlowGraph) -> frozenset[int]:
    """Edges into loops that are taken where the counter has already passed its last value.

    ptxas unrolls a loop that ends where its counter is equal to a constant, if the counter is
    greater at first, and otherwise leaves it as it is. It would then be repeated 2^32 times.
    """
    ends = {}
    for header, blocks in graph.loops:
        closing = [e.source for e in graph.edges if e.destination == header and e.source in blocks]
        if len(closing) == 1:
            ends[header] = _compared(graph, closing[0], "NE")
    return frozenset(
        number
        for number, edge in enumerate(graph.edges)
        if edge.source >= 0
        and edge.destination not in (EXIT, edge.source + 1)
        and ends.get(edge.destination)
        and ends[edge.destination] == _compared(graph, edge.source, "GT", negated=True)
    )


def _compared(
    graph: FlowGraph, block: int, comparison: str, *, negated: bool = False
) -> tuple[str, str] | None:
    """The register and the constant by whose comparison a block branches; None if it does not."""
    *steps, branch = graph.instructions(block)
    predicate = branch.predicate.removeprefix("!")
    if branch.name != "BRA" or not predicate or branch.predicate.startswith("!") != negated:
        return None
    setters = (step for step in reversed(steps) if predicate in step.operands[:2])
    setter = next(setters, None)
    if setter is None or not setter.opcode.startswith(f"ISETP.{comparison}."):
        return None
    operands = [operand.removesuffix(".reuse") for operand in setter.operands]
    if len(operands) != 5 or operands[0] != predicate or operands[4] != "PT":
        return None
    return operands[2], operands[3]


def unrolled_shares(graph: FlowGraph, profile: PtxProfile) -> dict[int, float]:
    """The share of a loop's iterations that each execution of an unrolled block saves."""
    lines, products, rare = profile.lines, _products_by_loop(profile), graph.rare_blocks
    shares: dict[int, float] = {}
    for block in range(len(graph.blocks)):
        for number, copies in _copies(graph, [block], lines, products, rare).items():
            if profile.loops[number].iterations:
                share = (copies - 1) / profile.loops[number].iterations
                shares[block] = max(shares.get(block, 0.0), share)
    return shares


def is_arithmetic(name: str, ptx_opcode: str) -> bool:
    """Whether an instruction does the floating-point arithmetic of the PTX's.

    `HFMA2` loads constants too, for integers.
    """
    floats = ".f" in ptx_opcode or ".bf" in ptx_opcode
    return name in _ARITHMETIC and floats and not ptx_opcode.startswith(_WITHOUT_ARITHMETIC)


def tensor_expansion(ptx_opcode: str, opcode: str) -> float:
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


def _copies(
    graph: FlowGraph,
    blocks: Iterable[int],
    lines: Mapping[int, PtxCount],
    products: Mapping[int, int],
    rare: Collection[int],
) -> dict[int, int]:
    """How often blocks hold the body of each loop of the PTX: the median over its lines.

    Of the instructions that a line takes, the rarest counts. Blocks for rare cases are left out:
    they repeat what others hold.
    """
    copies: dict[int, dict[int, dict[str, float]]] = {}
    for block in blocks:
        for step in graph.instructions(block) if block not in rare else ():
            count = lines.get(step.ptx_line)
            if count is None or count.loop < 0:
                continue
            line, taken = count.line, 1.0
            if step.name in WARPGROUP:
                line, taken = _PRODUCTS, max(products.get(count.loop, 0), 1)
            elif count.opcode == SEVERAL:
                continue
            elif step.name in TENSOR:
                taken = tensor_expansion(count.opcode, step.opcode)
            elif step.name not in _COUNTED and not is_arithmetic(step.name, count.opcode):
                continue
            if taken:
                by_opcode = copies.setdefault(count.loop, {}).setdefault(line, {})
                by_opcode[step.opcode] = by_opcode.get(step.opcode, 0.0) + 1 / taken
    found = {
        loop: median_low([min(times.values()) for times in by_line.values()])
        for loop, by_line in copies.items()
    }
    by_counters: dict[int, list[float]] = defaultdict(list)
    for line, trips in counted_trips(graph, blocks, lines).items():
        by_counters[lines[line].loop].append(trips)
    found |= {loop: median_low(trips) for loop, trips in by_counters.items()}
    return {loop: max(round(times), 1) for loop, times in found.items()}


def counted_trips(
    graph: FlowGraph, blocks: Iterable[int], lines: Mapping[int, PtxCount]
) -> dict[int, float]:
    """By how many trips blocks move each counter of a loop on, by the counter's line in the PTX.

    Where the PTX adds 4 to it in each trip and the machine code 16, they hold the body four times.
    """
    added: dict[int, Counter[str]] = defaultdict(Counter)
    for block in blocks:
        for step in graph.instructions(block):
            count = lines.get(step.ptx_line)
            if count is not None and count.loop >= 0 and count.increment:
                register, constant = _in_place_addition(step)
                added[count.line][register] += constant
    trips = {}
    for line, by_register in added.items():
        most = max(map(abs, by_register.values())) / abs(lines[line].increment)
        if most >= 1 and most == round(most):
            trips[line] = most
    return trips


def _in_place_addition(step: MachineInstruction) -> tuple[str, int]:
    """The register to which an instruction adds a constant, and the constant; 0 for none."""
    if not step.name.startswith(ADDITIONS) or not step.is_unconditional:
        return "", 0
    operands = [operand.removesuffix(".reuse") for operand in step.operands]
    registers = [o for o in operands if not _PREDICATE.match(o) and o not in _ZEROS]
    if len(registers) != 3 or registers[0] not in registers[1:]:
        return "", 0
    written, *read = registers
    read.remove(written)
    try:
        constant = int(read[0], 0)
    except ValueError:
        return "", 0
    negative = constant >= 1 << (_REGISTER_BITS - 1)  # VIADD prints the bits of -1 as 0xffffffff
    return written, constant - (negative << _REGISTER_BITS)
