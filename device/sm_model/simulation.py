"""The simulation of an SM, called from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.compiled import Compiled
from memlab.device.emulator.codegen.llvm import library_of
from memlab.device.emulator.codegen.records import dtype_of
from memlab.device.machine_code.retries import SharedAdditions
from memlab.device.properties import SECTOR_BYTES, WARP_SIZE
from memlab.device.sm_model import simulation_code
from memlab.device.sm_model.records import (
    BANKS,
    NONE,
    QUANTILES,
    SCHEDULERS,
    Barrier,
    Machine,
    Operation,
    Slot,
    Step,
    Unit,
    Warp,
)
from memlab.device.sm_model.records import Rounds as RoundsRecord

CODE_LINE_BYTES = 128
"""What an instruction cache loads at once (Jia et al., "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", arXiv 1804.06826)."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Steps = NDArray[np.void]
"""`Step` records."""
Rounds = NDArray[np.void]
"""`Rounds` records."""


def empty_steps(count: int) -> Steps:
    """Records of instructions that take a clock and wait for nothing."""
    steps = np.zeros(count, dtype_of(Step))
    steps["busy"] = steps["stall"] = steps["lines"] = 1
    steps["write"] = steps["read"] = steps["bank"] = steps["site"] = NONE
    steps["curve"] = steps["adding"] = steps["walked"] = NONE
    steps["far"], steps["sector_bytes"] = NONE, SECTOR_BYTES
    steps["awaited_share"] = steps["rewritten"] = 1.0
    return steps


@dataclass(frozen=True)
class Rates:
    """What an SM and its share of the device can do, in SM clocks.

    Attributes:
        block_interval: Clocks from the start of a block to the start of the next one on this SM.
        first_block: Clocks until the first block starts.
        block_latency: Clocks from the end of a block to the first instruction of the next one.
        warp_interval: Clocks from the start of a block's warp to that of its next one.
        queue_depth: Memory instructions that a sub-core holds.
        barrier_clocks: Clocks that a barrier takes to see one warp arrive.
        barrier_latency: Clocks from then to the next instruction.
        least_sectors: Sectors that the L2 takes the time of for each line, however few it has.
        read_sector_clocks: Clocks per sector of the SM's share of the L2, reading.
        write_sector_clocks: The same, writing.
        hit_sector_clocks: Clocks of the latter that a sector takes which is read there, in the mean
            of those that the L2 merges and others.
        fill_byte_clocks: The same of a byte that DRAM reads, which is written into the L2.
        port_sector_clocks: Clocks per sector of the port from the L2 to the SM.
        store_port_sector_clocks: The same of the port from the SM to the L2.
        queued_lines: Lines of stores that wait in front of that port before the L1 stops.
        dram_byte_clocks: Clocks per byte of the SM's share of DRAM.
        dram_peak_byte_clocks: The same at the peak of DRAM, or at the part of it that is reached
            where sectors are missed without their neighbours.
        dram_queue_clocks: The service time of the queue (M/D/1) in which reads of DRAM wait.
        dram_turnaround_clocks: What they wait besides for writes, at full load.
        dram_window: Clocks over which the load of DRAM is averaged.
        dram_sector_bytes: Bytes that DRAM reads for a missed sector.
        backlog: Clocks of traffic under way at which the L1 stops taking accesses.
        l2_latencies: Equally likely latencies of an L2 hit.
        dram_latencies: Equally likely latencies of an L2 miss, beyond the time of its bytes.
        fetch_latency: Clocks until a line of code is there that was not prefetched.
        fetch_interval: Clocks between lines that are prefetched.
        fetch_ahead: Lines that are prefetched.
        indexed_places: Lines of constant memory that the cache of indexed loads holds.
        uniform_places: The same of that of a sub-core for loads with an index in a uniform
            register; at most as many.
        constant_latency: Clocks until a line is there that a cache does not hold.
        constant_interval: Clocks between such lines, of an SM.
        kept_clocks: Clocks for which a cache keeps a line at least.
        arrival_clocks: Clocks from an arrival at a barrier in shared memory until a warp that
            waits for it goes on.
        far_arrival_clocks: The same of an arrival at a barrier of another block.
        cluster_clocks: The same of the barrier of a cluster.
        parting_clocks: Clocks that a round of a loop takes more in which some lanes leave it.
        swap_clocks: Clocks from the start of a compare-and-swap in shared memory until loads see
            what it stores.
        remote_sector_clocks: Clocks per sector of an access to another block's shared memory.
    """

    block_interval: float = 0.0
    first_block: float = 0.0
    block_latency: float = 0.0
    warp_interval: float = 0.0
    queue_depth: int = 5
    barrier_clocks: float = 0.0
    barrier_latency: float = 0.0
    least_sectors: float = 1.0
    read_sector_clocks: float = 0.0
    write_sector_clocks: float = 0.0
    hit_sector_clocks: float = 0.0
    fill_byte_clocks: float = 0.0
    port_sector_clocks: float = 0.0
    store_port_sector_clocks: float = 0.0
    queued_lines: float = 0.0
    dram_byte_clocks: float = 0.0
    dram_peak_byte_clocks: float = 0.0
    dram_queue_clocks: float = 0.0
    dram_turnaround_clocks: float = 0.0
    dram_window: float = 1.0
    dram_sector_bytes: float = 32.0
    backlog: float = 1e9
    l2_latencies: Floats = field(default_factory=lambda: np.zeros(1))
    dram_latencies: Floats = field(default_factory=lambda: np.zeros(1))
    fetch_latency: float = 0.0
    fetch_interval: float = 0.0
    fetch_ahead: int = 0
    indexed_places: int = 1
    uniform_places: int = 1
    constant_latency: float = 0.0
    constant_interval: float = 0.0
    kept_clocks: float = 0.0
    arrival_clocks: float = 0.0
    far_arrival_clocks: float = 0.0
    cluster_clocks: float = 0.0
    remote_sector_clocks: float = 0.0
    parting_clocks: float = 0.0
    swap_clocks: float = 0.0


@dataclass(frozen=True)
class BarrierWork:
    """What the warps of a block do to barriers in its shared memory.

    Attributes:
        arrivals: Arrivals that a phase of each barrier needs.
        operations: By warp, and by site (`Step.site`): `Operation` records as tuples, in order.
    """

    arrivals: tuple[int, ...] = ()
    operations: tuple[tuple[tuple[tuple[int, int, int, int, int], ...], ...], ...] = ()


@dataclass(frozen=True)
class Workload:
    """What an SM executes.

    Attributes:
        steps: The instructions of the machine code. The simulation adds to their counts.
        paths: The ranges of instructions (first, behind the last) of each path, shape (ranges, 2).
        active: The path of each warp of a block.
        idle: The path of each warp of a block that has no work; as `active` if there are none.
        active_share: The share of blocks that have work.
        blocks: Blocks that the SM executes.
        slots: Blocks that it holds at once.
        barriers: What the warps do to barriers in shared memory.
        additions: What they add in shared memory.
        turn: By how many warps the paths of a block lie behind those of the block before.
        missed_curves: By `Step.curve` and part of the launch, or of a block: the factor of
            `Step.missed`.
        dram_curves: The same of `Step.dram`.
        far_curves: The same of `Step.far`.
        walks: The lines of constant memory that each warp of a block reads, in order.
    """

    steps: Steps
    paths: tuple[Integers, ...]
    active: tuple[int, ...]
    idle: tuple[int, ...]
    active_share: float
    blocks: int
    slots: int
    barriers: BarrierWork = field(default_factory=BarrierWork)
    additions: SharedAdditions = field(default_factory=SharedAdditions)
    turn: int = 0
    missed_curves: Floats = field(default_factory=lambda: np.ones((1, 1)))
    dram_curves: Floats = field(default_factory=lambda: np.ones((1, 1)))
    far_curves: Floats = field(default_factory=lambda: np.ones((1, 1)))
    walks: tuple[Integers, ...] = ()


@dataclass(frozen=True)
class Simulated:
    """What a simulation found.

    Attributes:
        clocks: SM clocks until the last instruction issued, and stores were complete.
        issued: Warp instructions.
        starts: When each block started.
        stuck: Whether warps wait at barriers in shared memory that nothing completes.
        left_sectors: Sectors of stores that left the L1, of which it merged others with these.
        rounds: Of each of `Workload.additions`: `Rounds` records.
    """

    clocks: float
    issued: int
    starts: Floats
    stuck: bool = False
    left_sectors: float = 0.0
    rounds: Rounds = field(default_factory=lambda: np.zeros(0, dtype_of(RoundsRecord)))


def run(work: Workload, rates: Rates) -> Simulated:
    """Simulate an SM.

    Args:
        work: What it executes.
        rates: What it can do.
    """
    machine = np.zeros((), dtype_of(Machine))
    kept: list[NDArray[np.generic]] = []  # what the machine's pointers point to

    def point(name: str, array: NDArray[np.generic]) -> NDArray[np.generic]:
        kept.append(array)
        machine[name] = array.ctypes.data
        return array

    warps_per_block, slots = len(work.active), min(work.slots, work.blocks)
    steps = work.steps
    lengths = [len(path) for path in work.paths]
    point("steps", steps)
    point("ranges", np.ascontiguousarray(np.concatenate(work.paths), np.int64))
    point("paths", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    point("path_of", np.array([*work.active, *work.idle], np.int64))
    point("warps", np.zeros(slots * warps_per_block + 1, dtype_of(Warp)))
    point("youngest_first", np.arange(slots))
    point("places", np.zeros(slots + 1, dtype_of(Slot)))
    lines = int(steps["line"].max()) + 1
    point("code", np.full(lines, -1.0))
    _point_constants(machine, point, work, rates)
    point("unit_free", np.zeros(SCHEDULERS * len(Unit)))
    point("ports", np.zeros(SCHEDULERS * BANKS))
    point("queue", np.zeros(SCHEDULERS * rates.queue_depth))
    starts = np.zeros(work.blocks)
    point("starts", starts)
    point("l2_table", quantiles(rates.l2_latencies))
    point("dram_table", quantiles(rates.dram_latencies))
    for name in ("missed_curves", "dram_curves", "far_curves"):
        point(name, np.ascontiguousarray(getattr(work, name)))
    machine["curves"], machine["curve_parts"] = work.dram_curves.shape
    point("issued_in_block", np.zeros(slots * len(work.dram_curves), np.int64))
    listed = [of for warp in work.barriers.operations for of in warp]
    operations = np.zeros(sum(map(len, listed)) + 1, dtype_of(Operation))
    for number, operation in enumerate(item for of in listed for item in of):
        operations[number] = operation
    sites = len(work.barriers.operations[0]) if work.barriers.operations else 0
    point("operations", operations)
    point("first_operation", np.cumsum([0, *map(len, listed)]).astype(np.int64))
    point("arrivals", np.array([*work.barriers.arrivals, 0], np.int64))
    point("states", np.zeros(slots * len(work.barriers.arrivals) + 1, dtype_of(Barrier)))
    point("cursors", np.zeros(slots * warps_per_block * sites + 1, np.int64))
    machine["barriers"], machine["sites"] = len(work.barriers.arrivals), sites
    rounds = _point_to_additions(machine, point, work.additions, slots, warps_per_block)
    machine["warps_per_block"], machine["slots"], machine["blocks"] = (
        warps_per_block,
        slots,
        work.blocks,
    )
    machine["active_share"], machine["turn"], machine["random"] = work.active_share, work.turn, 1
    machine["active_due"] = 1 - work.active_share  # the first one is: some SM has it
    machine["dispatch_free"], machine["code_lines"] = rates.first_block, lines
    machine["last"] = [0, *[NONE] * (SCHEDULERS - 1)]
    for name in vars(rates).keys() & (machine.dtype.names or ()):
        machine[name] = vars(rates)[name]
    function: Compiled[Any] = cast(Any, simulation_code.simulate)
    library = library_of("sm_model", Path(__file__).parent, function)
    library.function(function.name, None, ctypes.c_void_p)(machine.ctypes.data)
    return Simulated(
        clocks=max(float(machine["clock"]) + 1, float(machine["drained"])),
        issued=int(machine["issued"]),
        starts=starts[: int(machine["started"])],
        stuck=int(machine["running"]) > 0,
        left_sectors=float(machine["left_sectors"]),
        rounds=rounds,
    )


def _point_to_additions(
    machine: NDArray[np.void],
    point: Callable[[str, NDArray[Any]], NDArray[Any]],
    additions: SharedAdditions,
    slots: int,
    warps: int,
) -> Rounds:
    """Describe the additions to the machine; return the records that it adds to."""
    listed = [of for block in additions.words for warp in block for of in warp]
    empty = np.full((1, WARP_SIZE), NONE)
    added = np.ascontiguousarray(np.concatenate([*listed, empty]), np.int64)
    words, count = len(additions.banks), len(additions.lines)
    rounds = np.zeros(count + 1, dtype_of(RoundsRecord))
    point("added", added)
    point("first_added", np.cumsum([0, *map(len, listed)]).astype(np.int64))
    point("rounds", rounds)
    point("bank_of", np.array([*additions.banks, 0], np.int64))
    point("lanes_at_once", np.array([*additions.lanes_at_once, 0], np.int64))
    point("seen", np.zeros(words + 1, np.int64))
    point("swapped", np.full(slots * words + 1, -1.0))
    point("turns", np.zeros(slots * warps * count + 1, np.int64))
    machine["additions"], machine["words"] = count, words
    machine["added_blocks"] = max(len(additions.words), 1)
    return rounds[:count]


def _point_constants(
    machine: NDArray[np.void],
    point: Callable[[str, NDArray[Any]], object],
    work: Workload,
    rates: Rates,
) -> None:
    """Give a machine the walks through constant memory, and empty caches."""
    point("banks", np.full(max(int(work.steps["bank"].max()), 0) + 1, -1.0))
    warps = len(work.active)
    known = work.walks or (np.zeros(0, np.int64),)
    walks = [known[warp % len(known)] for warp in range(warps)]
    constants = int(max((walk.max(initial=0) for walk in walks), default=0)) + 1
    point("walks", np.concatenate([*walks, [0]]).astype(np.int64))
    point("first_walked", np.cumsum([0, *map(len, walks)]).astype(np.int64))
    caches = SCHEDULERS + 1
    point("place_of", np.full(caches * constants, NONE, np.int64))
    point("taken", np.zeros(caches * constants))
    point("there", np.zeros(caches * constants))
    point("until", np.zeros(caches * constants))
    point("held", np.full(caches * rates.indexed_places, NONE, np.int64))
    point("used", np.full(caches * rates.indexed_places, -1e6))
    machine["constant_lines"] = constants


def quantiles(values: Floats) -> Floats:
    """A table of `QUANTILES` equally likely values that has the distribution of some others."""
    at = (np.arange(QUANTILES) + 0.5) / QUANTILES * len(values) - 0.5
    return np.interp(at, np.arange(len(values)), np.sort(values))
