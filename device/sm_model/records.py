"""The records of the simulation, shared by Python and its machine code."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from memlab.device.emulator.codegen.records import Pointer, Record
from memlab.device.emulator.models.repeated_stores import FARTHEST_STORE
from memlab.device.machine_code.runtime_calls import RUNTIME_FUNCTIONS
from memlab.device.properties import SHARED_BANKS

SCHEDULERS = 4
"""Sub-cores of an SM, each of which issues one warp instruction a clock (CUDA C++ Programming
Guide, "Compute Capabilities": four warp schedulers from 7.x on)."""
SCOREBOARDS = 7
"""Dependence counters per warp: six that the machine code names (Huerta et al., "Analyzing Modern
NVIDIA GPU Cores", MICRO 2025), and `FENCES`."""
FENCES = SCOREBOARDS - 1
"""The one of memory fences, which a warp waits for though the machine code names none."""
BANKS = 2
"""Banks of a sub-core's registers, by the number of a register; each reads one register of a warp
per clock (ibid.)."""
READ_WINDOW_CLOCKS = 3.0
"""In which an instruction of fixed latency reads its registers (ibid.)."""
QUANTILES = 256
"""Entries of a table of latencies: equally likely values."""
GROUPS = 8
"""Groups of asynchronous copies that a warp has under way; an older one counts as complete."""
PHASES = 8
"""Phases of a barrier that are known; an older one counts as complete."""
FUNCTIONS = len(RUNTIME_FUNCTIONS)
"""Functions of the driver, whose calls by several warps wait for each other."""
STALLS = 14
"""Reasons of `Stall`."""
NEIGHBOURS = 8.0
"""Lines that lie together in DRAM: their latencies are equal (`tests/data/h200-neighbours.csv`)."""
NONE = -1


class Unit(IntEnum):
    """What an instruction is issued to, in each sub-core."""

    FMA = 0  # either of the two halves of the FMA pipe
    ALU = 1
    FP64 = 2
    TRANSCENDENTAL = 3
    TENSOR = 4
    UNIFORM = 5
    BRANCH = 6
    MEMORY = 7  # the queue of memory instructions: loads, stores, shuffles, barriers
    CONSTANT = 8  # indexed loads from constant memory
    MISCELLANEOUS = 9
    FMA_HEAVY = 10  # the half that also multiplies integers
    FMA_LITE = 11


class Kind(IntEnum):
    """What the simulation does with an instruction."""

    FIXED = 0  # its stall count alone tells when its result is ready
    VARIABLE = 1  # it releases its barrier after its latency
    LOCAL = 2  # it passes the L1's data stage: shared memory, shuffles
    LOAD = 3  # through the L1, and the L2 and DRAM for what misses
    STORE = 4
    ATOMIC = 5  # at the L2
    SYNCHRONIZE = 6  # waits for the warps of the block, or those that meet at a named barrier
    COMMIT = 7  # closes a group of asynchronous copies
    AWAIT = 8  # waits until only some groups of asynchronous copies are under way
    CONSTANT = 9  # an indexed load from constant memory
    TEST = 10  # waits until a barrier in shared memory has completed a phase
    CHANGE = 11  # arrives at a barrier in shared memory or a named one, or expects bytes there
    COPY = 12  # a copy by the copy engine, which completes its bytes at a barrier
    COPY_OUT = 13  # a copy by the copy engine to global memory
    PRODUCT = 14  # a product of a warpgroup, which completes later
    AWAIT_PRODUCTS = 15  # waits until only some groups of products are under way
    ARRIVE_CLUSTER = 16  # arrives at the barrier of the cluster
    AWAIT_CLUSTER = 17  # waits there for the others
    SEND = 18  # writes to shared memory of another block, and completes its bytes at a barrier
    ARRIVE_COPIED = 19  # arrives at a barrier when the copies before it are complete


class Stall(IntEnum):
    """Why a warp does not issue (Nsight Compute, Profiling Guide, "Warp Stall Reasons")."""

    WAIT = 0  # for the stall count of the instruction before
    LONG_SCOREBOARD = 1  # for a result of global, local or another block's memory, or a texture
    SHORT_SCOREBOARD = 2  # for a result of shared memory, a special function, a shuffle
    LG_THROTTLE = 3  # the queue of global and local accesses is full
    MIO_THROTTLE = 4  # the queue of the other memory instructions is full
    MATH_PIPE_THROTTLE = 5  # the pipe is taken
    DISPATCH_STALL = 6  # the registers of one bank are being read, or a wide product dispatched
    BARRIER = 7  # other warps of the block, or of its cluster, have not arrived
    MEMBAR = 8  # for a memory fence
    NO_INSTRUCTION = 9  # the code is not there
    IMC_MISS = 10  # an operand in constant memory is not there
    NOT_SELECTED = 11  # another warp issues
    GMMA = 12  # for a product of its warpgroup
    BRANCH_RESOLVING = 13  # for the target of a branch


class Step(Record):
    """An instruction of the machine code."""

    kind: int
    unit: int
    busy: float  # clocks that the unit of a sub-core needs for it
    reads: Annotated[Pointer[float], BANKS]  # registers that it reads of each bank
    window: float  # clocks in which it must have read them; many if it reads them later
    dispatch: float  # clocks behind it in which its sub-core issues nothing
    stall: int  # clocks until the warp may issue its next instruction
    resolving: float  # clocks that follow, until a branch has its target
    wait: int  # a mask of scoreboards that must be released before it issues
    write: int  # the scoreboard that is released with its result; NONE
    read: int  # the scoreboard that is released when its operands were read; NONE
    latency: float  # clocks from the unit to the result, in the SM itself
    passes: float  # clocks that it occupies the L1's data stage, or the constant cache
    lines: float  # 128-byte lines per request
    whole: int  # 1 where it reads whole lines, which are neighbours then, of its block's warps too
    sectors: float  # 32-byte sectors per request
    missed: float  # share of them that the L1 does not have; all of a store's
    dram: float  # share of the missed that the L2 does not have
    far: float  # share of the lines in the L2 that come from its other partition; NONE: unknown
    curve: int  # the row of the tables by progress that it has; NONE if its shares stay the same
    advance: float  # of its progress through that row, with each issue
    in_block: int  # 1 where that begins anew with each block
    joined: float  # share of the lines in the L1 that are on their way to it
    joined_dram: float  # share of these that come from DRAM
    l2_joined_dram: float  # share of the lines in the L2 that are on their way from DRAM
    awaited_share: float  # of what DRAM takes longer than the L2, that reads of these lines wait
    least_written: float  # sectors that the L2 takes the time of, for each line that it writes
    written: float  # bytes that DRAM writes sooner or later for each sector
    sector_bytes: float  # of each sector, that it writes
    part_written: float  # sectors that the L2 takes the time of where it writes parts of them
    rewritten: float  # times that a sector takes of the L2 as one that was not stored before
    repeats: int  # 1 for a store of which `repeated` has an item
    repeated: Annotated[Pointer[float], FARTHEST_STORE]  # as in `Access`
    serial: float  # clocks in which an atomic, or a call of the driver, lets the SM make no other
    call: float  # clocks that a function of the driver takes, which it calls; 0 for none
    called: int  # the number of that function
    remote: float  # share of its requests that go to shared memory of another block
    remote_sectors: float  # 32-byte sectors of one of these
    remote_latency: float  # clocks from the last of them to the result
    groups: int  # of an AWAIT: the groups that may still be under way
    copies: int  # 1 for an asynchronous copy, which COMMIT covers, or a product that ends a group
    adding: int  # the number of the additions that it loads the words of, or swaps them; NONE
    loads_words: int  # 1 where it loads them
    loads_shared: int  # 1 where it loads from shared memory
    site: int  # the list of barrier operations that it takes the next one of; NONE
    line: int  # the 128-byte line of code that it lies in
    bank: int  # the line of constant memory at a fixed address that it reads; NONE
    bank_latency: float  # clocks until that line is there, at its first use
    walked: float  # lines of constant memory by which it goes on in its warp's walk; NONE
    awaited: int  # the reason of warps that wait for its result
    throttle: int  # the reason of warps that wait for its unit
    throttled: float  # the share of that wait in which the unit takes no instruction
    issued: int  # how often it was issued, of all warps
    stalls: Annotated[Pointer[float], STALLS]  # clocks that warps waited to issue it, by reason


class Operation(Record):
    """What an instruction does to a barrier in shared memory, or a named one."""

    barrier: int
    arrivals: int
    transactions: int  # bytes that it expects; negative: that it completes
    phases: int  # that it waits for
    far: int  # 1 where the barrier is another block's


class Barrier(Record):
    """A barrier in the shared memory of a block, or a named one."""

    pending: int  # arrivals that its phase waits for
    transactions: int  # bytes that its phase waits for
    phases: int  # that are complete
    latest: float  # when the last of what its phase waited for came, so far
    complete: Annotated[Pointer[float], PHASES]  # when the last phases were complete


class Warp(Record):
    """A place for a warp."""

    ready: float  # the clock from which it may issue; never, if it has ended or waits at a barrier
    unit: int  # of its next instruction
    reads: Annotated[Pointer[float], BANKS]  # the registers that it reads, less its window
    step: int  # its next instruction
    stop: int  # the end of the current range
    range: int  # the number of the next range of its path
    ranges: int  # the end of its path
    running: int
    slot: int
    member: int  # its place among the warps of its block; NONE if the block has no work
    origin: int  # the place among the warps of a block whose path it has
    unswapped: int  # a mask of the lanes that have not succeeded in an addition under way
    tries: int  # 1 where its range is executed again; 2 where some of its lanes leave it
    compared: float  # when it loaded the words of its addition
    walked: float  # lines of constant memory, so far
    loads: int  # of whole lines, so far
    stored: float  # when all its stores have left the SM
    stores: int  # so far
    leaving: Annotated[Pointer[float], FARTHEST_STORE]  # from when lines of the last ones leave
    left: Annotated[Pointer[float], FARTHEST_STORE]  # until when
    filled: Annotated[Pointer[float], FARTHEST_STORE]  # bytes of their sectors that are written
    copied: float  # when all its asynchronous copies are complete
    committed: int  # groups so far
    groups: Annotated[Pointer[float], GROUPS]  # when each is complete
    boards: Annotated[Pointer[float], SCOREBOARDS]  # when each scoreboard is released
    awaited: Annotated[Pointer[int], SCOREBOARDS]  # the reason of waiting for it
    since: float  # when it reached the barrier
    barrier: int  # the instruction that waits there
    joined: int  # times that it has arrived at the barrier of the cluster
    tested: int  # the barrier in shared memory, named one or that of the cluster it waits for; NONE
    phases: int  # of that barrier, which must be complete
    multiplied: float  # when all its products are complete
    closed: int  # groups of products so far
    products: Annotated[Pointer[float], GROUPS]  # when each is complete


class Slot(Record):
    """A place for a block."""

    number: int  # of the block
    running: int  # warps that have not ended
    arrived: int  # warps that wait at the barrier
    released: float  # when the barrier has seen the last of them
    stored: float  # when the stores of the warps that have ended have left the SM
    joined: int  # warps that have arrived at the barrier of the cluster
    meeting: int  # warps that wait there
    last_joined: float  # when the last of them did
    meetings: int  # times that the barrier of the cluster has opened
    met: float  # when it opened last


class Rounds(Record):
    """How often warps and lanes tried to add."""

    executions: int  # of the addition
    lanes: int  # that added
    warp_rounds: int
    lane_rounds: int
    groups: int  # rounds in which lanes succeeded
    excessive: int  # wavefronts of the loads for bank conflicts


class Machine(Record):
    """An SM, what it executes, and its state."""

    # What it executes.
    steps: Pointer[Step]
    ranges: Pointer[int]  # pairs: the first instruction and the one behind the last
    paths: Pointer[int]  # where the ranges of a path begin; one more item than paths
    path_of: Pointer[int]  # the path of each warp: of an active block, then of an idle one
    turn: int  # by how many warps the paths of a block lie behind those of the one before
    warps_per_block: int
    slots: int  # resident blocks
    blocks: int  # blocks to execute
    active_share: float  # the share of blocks that are active

    # Rates and latencies, in clocks.
    block_interval: float  # from the start of a block to the next one's, on this SM
    block_latency: float  # from the end of a block to the first instruction of its successor
    warp_interval: float  # from the start of a block's warp to the next one's
    queue_depth: int  # memory instructions that a sub-core holds
    barrier_clocks: float  # that a barrier takes to see a warp arrive
    barrier_latency: float  # from the last arrival to the next instruction
    least_sectors: float  # that the L2 takes the time of, for each line
    read_sector_clocks: float  # L2, this SM's share
    write_sector_clocks: float
    hit_sector_clocks: float  # of the L2's time for writing, for a sector that is read there
    fill_byte_clocks: float  # of the same, for a byte that DRAM reads
    port_sector_clocks: float  # the port from the L2 to the SM
    store_port_sector_clocks: float  # that from the SM to the L2
    queued_lines: float  # of stores that wait in front of the latter; behind more, the L1 stops
    dram_byte_clocks: float
    dram_peak_byte_clocks: float  # the same at the peak of DRAM, or its part for lone sectors
    dram_queue_clocks: float  # the service time of the queue in front of DRAM
    dram_turnaround_clocks: float  # that a read waits besides for writes, at full load
    dram_window: float  # the clocks over which its load is averaged
    dram_sector_bytes: float  # that DRAM reads for a missed sector
    backlog: float  # clocks of traffic that the SM may have before its L1 stops
    l2_table: Pointer[float]  # QUANTILES latencies, from the L1's miss to the data
    dram_table: Pointer[float]
    missed_curves: Pointer[float]  # by curve and part of a launch: the factor of a step's `missed`
    dram_curves: Pointer[float]  # the same of `dram`
    far_curves: Pointer[float]  # the same of `far`
    curve_parts: int
    curves: int
    issued_in_block: Pointer[int]  # by slot and curve: how often its step was issued for the block
    fetch_latency: float  # until another line that no prefetch covers
    fetch_interval: float  # between lines that are prefetched
    fetch_ahead: int  # lines that are prefetched

    # Tables of constant memory.
    walks: Pointer[int]  # the lines that warps of a block read, warp after warp
    first_walked: Pointer[int]  # where those of a warp begin; one item more than warps
    constant_lines: int  # that are read at all
    indexed_places: int  # lines that the cache of indexed loads holds
    uniform_places: int  # the same of that of a sub-core for uniform registers
    constant_latency: float  # until a line is there that a cache does not hold
    constant_interval: float  # between such lines
    kept_clocks: float  # for which a line is kept at least

    # Barriers in shared memory.
    barriers: int  # of a block
    arrivals: Pointer[int]  # that a phase of each needs
    sites: int
    operations: Pointer[Operation]
    first_operation: Pointer[int]  # by warp of a block and site; one item more
    arrival_clocks: float  # from an arrival until a warp that waits for it goes on
    far_arrival_clocks: float  # the same of an arrival at a barrier of another block
    cluster_clocks: float  # the same of the barrier of a cluster
    remote_sector_clocks: float  # of the network between SMs, this SM's share

    # Additions in shared memory that are loops of compare-and-swap.
    additions: int  # of the kernel
    added: Pointer[int]  # WARP_SIZE words of each execution, NONE of a lane that does not add
    added_blocks: int  # blocks whose words are known
    first_added: Pointer[int]  # by such a block, its warp, and addition: its first execution; one
    # item more
    words: int  # of a block
    bank_of: Pointer[int]  # by word
    lanes_at_once: Pointer[int]  # by addition: lanes that the banks serve at the same time
    rounds: Pointer[Rounds]  # by addition
    parting_clocks: float  # that it takes a warp of whose lanes some leave a loop
    swap_clocks: float  # from the start of a compare-and-swap until others load what it stores

    # State.
    swapped: Pointer[float]  # by slot and word: when it was changed last
    seen: Pointer[int]  # by word: the number of the last request that has it
    requests: int  # to these words so far
    served: Annotated[Pointer[int], SHARED_BANKS]  # words of each bank of one request
    turns: Pointer[int]  # by place of a warp and addition: its executions so far
    states: Pointer[Barrier]  # by slot and barrier
    cursors: Pointer[int]  # by place of a warp and site: the next operation
    warps: Pointer[Warp]
    places: Pointer[Slot]
    code: Pointer[float]  # when each line of code is there; negative: not requested
    code_lines: int
    banks: Pointer[float]  # the same of lines of constant memory
    unit_free: Pointer[float]  # by sub-core and unit
    next: Annotated[Pointer[float], SCHEDULERS]  # the clock at which a scheduler may have work
    last: Annotated[Pointer[int], SCHEDULERS]  # the warp that it issued last; NONE
    blocked: Annotated[Pointer[float], SCHEDULERS]  # the clock from which it may issue again
    blocked_from: Annotated[Pointer[float], SCHEDULERS]  # and that from which it may not
    youngest_first: Pointer[int]  # slots, that of the block which started last at first
    ports: Pointer[float]  # when each bank of a sub-core's registers can be read
    address_free: Annotated[Pointer[float], SCHEDULERS]
    result_free: Annotated[Pointer[float], SCHEDULERS]  # the way of global loads to registers
    shared_result_free: Annotated[Pointer[float], SCHEDULERS]  # that of shared memory
    queue: Pointer[float]  # when memory instructions leave, a ring per sub-core
    queue_head: Annotated[Pointer[int], SCHEDULERS]
    l1_free: float
    left_sectors: float  # of stores, that have left the L1 or will
    constant_free: float
    line_free: float  # when the next line of constants may be asked for
    held: Pointer[int]  # by cache (each sub-core's, then the SM's) and place: its line; NONE
    used: Pointer[float]  # when a place was used last
    place_of: Pointer[int]  # by cache and line: its place, or that which it had
    taken: Pointer[float]  # from when it has a place
    there: Pointer[float]  # from when the line is there
    until: Pointer[float]  # until when
    barrier_free: float
    l2_free: float
    write_free: float  # the same of what writes into the L2
    port_free: float
    store_port_free: float
    remote_free: float  # the network to the other SMs
    atomic_free: float  # when the sector that all atomics want is free
    call_free: Annotated[Pointer[float], FUNCTIONS]  # when each can be called
    dram_free: float
    dram_load: float  # clocks of DRAM's time at its peak, in the window
    dram_seen: float  # when that was
    drained: float  # when the last store is complete
    dispatch_free: float
    random: int
    active_due: float
    started: int  # blocks
    running: int  # warps
    issued: int
    clock: float
    starts: Pointer[float]  # when each block started
