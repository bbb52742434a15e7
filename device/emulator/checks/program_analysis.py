"""What the checks know of a program before it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from memlab.device.emulator.checks.lane_exchanges import find_exchanged_loads
from memlab.device.emulator.checks.memory_order import (
    MemoryOrder,
    is_fence,
    memory_orders,
    orders_accesses,
)
from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.codegen.stretches import is_cluster_barrier, is_partial
from memlab.device.emulator.isa import macros, mbarrier
from memlab.device.emulator.isa.asynchronous import tensor_copies
from memlab.device.emulator.isa.asynchronous.bulk_copies import VIEW
from memlab.device.emulator.isa.asynchronous.warpgroup import is_factor_load
from memlab.device.emulator.program.program import (
    WRITING_KINDS,
    DecodedInstruction,
    Program,
    bytes_moved,
)
from memlab.device.emulator.ptx.parser import Symbol

TRACKED_SPACES = ("global", "shared", "local")
"""State spaces whose contents the tools follow."""

CHECKED_AS = {"load": "load", "store": "store", "atomic": "atomic", "reduce": "atomic"}
"""The kind of an access, by the kind of its row."""

_Flows = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ProgramAnalysis:
    """What the tools read of a program, whatever it is launched with.

    Attributes:
        steps: Its instructions.
        lines: Their source lines, shape (instructions,).
        targets: The targets of branches, and a -1 behind them, shape (instructions + 1,).
        unit_bytes: By state space, bytes of the smallest unit that is tracked.
        memory_orders: The memory order of each instruction.
        has_fences: Whether fences and accesses may order those of other threads.
        has_warp_barriers: Whether threads of a warp may wait for each other alone.
        has_partial_barriers: Whether some threads of a block may.
        has_relaxed_arrivals: Whether threads may arrive at a cluster's barrier without a release.
        exchanged_loads: By shuffle or vote, the loads whose values may go into it.
        has_shuffles: Whether lanes read the registers of others.
        uses_of_shuffles: The instructions that a shuffle's undefined value may reach.
        early_loads: The loads that the compiler may have moved above the branch that needs them.
        uses_of_early_loads: The instructions that the value of such a load may reach.
        async_copies: The instructions that are the store of an asynchronous copy.
        async_reads: Those that read through the async proxy: for bulk copies and `wgmma`.
        bulk_reads: Those that read what a bulk copy moves.
        bulk_writes: Those by which a bulk copy writes to shared memory.
        bulk_completions: Those that complete the bytes of a bulk copy at its barrier.
        barrier_tests: The loads by which threads test an `mbarrier`.
        noncoherent_loads: The loads through the read-only cache (`ld.global.nc`).
        map_reads: Those by which tensor copies read their maps.
        map_releases: The stores of a map that also release it to tensor copies.
        stores: Whether each instruction is a store, shape (instructions,).
        returning_atomics: Whether each is an atomic operation whose result is read.
        global_stores: The instructions that write to global memory, or may do so.
    """

    steps: Sequence[DecodedInstruction]
    lines: Lanes
    targets: Lanes
    unit_bytes: Mapping[str, int]
    memory_orders: Sequence[MemoryOrder]
    has_fences: bool
    has_warp_barriers: bool
    has_partial_barriers: bool
    has_relaxed_arrivals: bool
    exchanged_loads: Mapping[int, frozenset[int]]
    has_shuffles: bool
    uses_of_shuffles: Set[int]
    early_loads: Set[int]
    uses_of_early_loads: Set[int]
    async_copies: Collection[int]
    async_reads: Collection[int]
    bulk_reads: Collection[int]
    bulk_writes: Collection[int]
    bulk_completions: Collection[int]
    barrier_tests: Collection[int]
    noncoherent_loads: Collection[int]
    map_reads: Collection[int]
    map_releases: Collection[int]
    stores: Lanes
    returning_atomics: Lanes
    global_stores: Collection[int]


@lru_cache(maxsize=32)
def analyze(program: Program) -> ProgramAnalysis:
    """Analyze a program; the result is kept for its next launch."""
    steps, orders = program.steps, memory_orders(program.steps)

    def places(holds: Callable[[DecodedInstruction], bool]) -> frozenset[int]:
        return frozenset(index for index, step in enumerate(steps) if holds(step))

    read = {name for step in steps for name in step.registers_read}
    shuffles = places(is_shuffle)
    flows = _flows(steps)
    early_loads = _find_early_loads(steps, flows)
    bulk = places(lambda s: s.row.view == VIEW)
    bulk_reads = places(lambda s: s.row.kind == "load") & bulk
    bulk_writes = places(lambda s: s.row.kind == "store" and s.row.space == "shared") & bulk
    return ProgramAnalysis(
        steps=steps,
        lines=np.array([step.instruction.source_line for step in steps]),
        targets=np.array([*(step.target for step in steps), -1]),
        unit_bytes={space: _narrowest_access_bytes(steps, space) for space in TRACKED_SPACES},
        memory_orders=orders,
        has_fences=any(map(is_fence, steps)) or any(o.release_scope is not None for o in orders),
        has_warp_barriers=any(map(is_warp_barrier, steps)),
        has_relaxed_arrivals=any(map(is_relaxed_arrival, steps)),
        has_partial_barriers=any(is_partial(s) and not is_cluster_barrier(s) for s in steps),
        exchanged_loads=find_exchanged_loads(steps),
        has_shuffles=bool(shuffles),
        uses_of_shuffles=_find_uses(steps, flows, shuffles),
        early_loads=early_loads,
        uses_of_early_loads=_find_uses(steps, flows, early_loads),
        async_copies=bulk_writes | places(lambda s: macros.is_async_copy_store(s.instruction)),
        async_reads=bulk_reads | places(lambda s: is_factor_load(s.row.opcode)),
        bulk_reads=bulk_reads,
        bulk_writes=bulk_writes,
        bulk_completions=places(lambda s: s.row.kind == "atomic") & bulk,
        barrier_tests=places(lambda s: mbarrier.is_test(s.instruction)),
        noncoherent_loads=places(lambda s: ".nc" in s.instruction.opcode),
        map_reads=places(lambda s: s.row.opcode == tensor_copies.MAP_READ),
        map_releases=places(lambda s: s.row.opcode == tensor_copies.MAP_RELEASE),
        stores=np.array([step.row.kind == "store" for step in steps]),
        returning_atomics=np.array(
            [
                step.row.kind == "atomic" and not read.isdisjoint(step.registers_written)
                for step in steps
            ]
        ),
        global_stores=places(
            lambda s: s.row.kind in WRITING_KINDS and s.row.space in ("global", "generic")
        ),
    )


@lru_cache(maxsize=32)
def find_watched_instructions(program: Program, tools: frozenset[str]) -> frozenset[int]:
    """The instructions that the tools are told of one by one; all others run as machine code.

    The position behind the last instruction is the program's end.
    """
    watched = {
        index for index, step in enumerate(program.steps) if _is_watched(program, step, tools)
    }
    if "synccheck" in tools:
        watched.update(analyze(program).uses_of_shuffles, _find_ends(program.steps))
    if "initcheck" in tools:
        watched.update(analyze(program).uses_of_early_loads)
    if "racecheck" in tools:
        watched.update(analyze(program).exchanged_loads)
    return frozenset(watched)


def is_warp_barrier(step: DecodedInstruction) -> bool:
    """Whether an instruction is `__syncwarp`."""
    return step.row.opcode == "bar.warp.sync"


def is_relaxed_arrival(step: DecodedInstruction) -> bool:
    """Whether an instruction is an arrival at the barrier of a cluster that releases nothing."""
    is_arrival = step.row.kind == "arrive" and is_cluster_barrier(step)
    return is_arrival and "relaxed" in step.instruction.opcode.split(".")


def is_warp_collective(step: DecodedInstruction) -> bool:
    """Whether lanes of a warp compute together: in shuffles, votes and matrix products."""
    return step.row.kind == "warp" and ".sync" in step.row.opcode


def is_shuffle(step: DecodedInstruction) -> bool:
    """Whether an instruction is a shuffle (`__shfl_sync` and its variants)."""
    return step.row.opcode.startswith("shfl.sync.")


def _is_watched(program: Program, step: DecodedInstruction, tools: Collection[str]) -> bool:
    match step.row.kind:
        case "load" | "store" | "atomic" | "reduce":
            is_tracked = step.row.space in (*TRACKED_SPACES, "generic")
            return is_tracked or not _is_inside_a_variable(program, step)
        case "nothing":
            return is_warp_barrier(step) or ("racecheck" in tools and orders_accesses(step))
        case "warp":
            return "synccheck" in tools and is_warp_collective(step)
        case kind:
            return kind in ("arrive", "trap", "heap")


def _is_inside_a_variable(program: Program, step: DecodedInstruction) -> bool:
    """Whether an access to constant memory or to arguments names a place that is in bounds."""
    base = step.address.base
    if not isinstance(base, Symbol):
        return False
    name, start = base.name, base.offset + step.address.offset
    spaces = (program.const, program.parameters, program.arguments)
    place = next((offsets[name] for offsets in spaces if name in offsets), 0) + start
    sizes = {variable.name: variable.size for variable in program.parameter_variables}
    size = bytes_moved(step.row)
    ends_inside = start + size <= sizes.get(name, program.sizes.get(name, 0))
    return start >= 0 and ends_inside and place % size == 0


def _find_ends(steps: Sequence[DecodedInstruction]) -> Iterator[int]:
    """Where lanes exit, and the branches that lead straight there."""
    exits = {index for index, step in enumerate(steps) if step.row.kind == "exit"}
    may_pass = any(steps[index].instruction.guard is not None for index in exits)
    exits.add(len(steps))
    yield from exits
    for index, step in enumerate(steps):
        if step.row.kind == "branch" and (may_pass or step.target in exits):
            yield index


def _find_early_loads(steps: Sequence[DecodedInstruction], flows: _Flows) -> frozenset[int]:
    """The loads that the compiler may have moved above the branch that needs them.

    It may do so where the address is that of a variable in shared or local memory, which is known
    to exist. Then an instruction chooses between the value and another one.
    """
    variables = _registers_of_variables(steps)
    loads = {
        index
        for index, step in enumerate(steps)
        if step.row.kind == "load"
        and step.row.space in ("shared", "local", "generic")
        and variables.issuperset(step.registers_read)
    }
    chosen_from = {
        name
        for step in steps
        if not {"selp", "and", "or"}.isdisjoint(step.row.opcode.split("."))
        for name in step.registers_read
    }
    return frozenset(
        index
        for index in loads
        if not chosen_from.isdisjoint(_reached(flows, steps[index].registers_written))
    )


def _registers_of_variables(steps: Sequence[DecodedInstruction]) -> set[str]:
    """The registers whose value is the same for all threads: addresses of variables, numbers."""
    writers: dict[str, list[DecodedInstruction]] = {}
    for step in steps:
        for name in step.registers_written:
            writers.setdefault(name, []).append(step)
    # A register of a loop has two writers: one before the loop.
    single = {name: of[0] for name, of in writers.items() if len(of) == 1}
    known, grows = set[str](), True
    while grows:
        new = {
            name
            for name, step in single.items()
            if name not in known
            and step.row.kind == "lanes"
            and known.issuperset(step.registers_read)
        }
        known |= new
        grows = bool(new)
    return known


def _find_uses(
    steps: Sequence[DecodedInstruction], flows: _Flows, sources: Collection[int]
) -> frozenset[int]:
    """The instructions that read or overwrite a register that the result of `sources` may reach."""
    written = (name for index in sources for name in steps[index].registers_written)
    reached = _reached(flows, written)
    return frozenset(
        index
        for index, step in enumerate(steps)
        if not reached.isdisjoint((*step.registers_read, *step.registers_written))
    )


def _flows(steps: Sequence[DecodedInstruction]) -> _Flows:
    """By register, the results of the arithmetic and shuffles that read it."""
    flows: dict[str, list[str]] = {}
    for step in steps:
        if step.row.kind == "lanes" or is_shuffle(step):
            for name in step.registers_read:
                flows.setdefault(name, []).extend(step.registers_written)
    return flows


def _reached(flows: _Flows, names: Iterable[str]) -> set[str]:
    """The registers that the value of some may reach, and these themselves."""
    reached, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += flows.get(name, ())
    return reached


def _narrowest_access_bytes(steps: Sequence[DecodedInstruction], space: str) -> int:
    """Bytes of the narrowest access of a program to a state space; at most 16."""
    widths = [
        bytes_moved(step.row) // step.row.vector
        for step in steps
        if step.row.kind in CHECKED_AS and step.row.space in (space, "generic")
    ]
    return min(widths, default=16)
