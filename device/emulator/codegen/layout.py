"""Layout of the memory that Python and the machine code share: records, and arrays of them.

Python makes the arrays, by the NumPy types at the end, and reads them; the machine code gets one
pointer, to the `Context`.
"""

from __future__ import annotations

from typing import Annotated

from memlab.device.emulator.codegen.check_layout import Check
from memlab.device.emulator.codegen.records import (
    Address,
    Byte,
    Half,
    Int32,
    Lanes,
    NarrowLanes,
    Pointer,
    Record,
    Word,
    dtype_of,
)
from memlab.device.emulator.isa.values import S64, U16, Value
from memlab.device.properties import LINE_BYTES

SPACES = ("global", "shared", "local", "const", "param", "param::func", "generic")
"""State spaces by their number in `SITE`."""

SITE_KINDS = ("load", "store", "atomic")
"""Kinds of memory instructions by their number in `SITE`; a reduction is an atomic."""


class Segment(Record):
    """A state space of the running blocks, but for global memory, whose bounds are in `Array`.

    A lane may access fewer than 2^30 bytes of it.
    """

    base: Address  # of the byte at address 0
    size: int  # bytes that a lane may access
    block_bytes: int  # distance between the parts of two blocks (shared memory)
    lane_bytes: int  # distance between the parts of two lanes (local memory)
    read_only: int


class Array(Record):
    """An array in global memory."""

    start: int  # address of the first byte
    end: int  # behind the last byte
    loaded: int  # whether a load has read from it
    stored: int  # whether a store, or an atomic operation, has written to it


COUNTERS = ("requests", "sectors", "wavefronts", "excessive", "addresses", "words", "bytes", "used")
"""The columns of the counters of memory instructions: 64-bit integers, a row per instruction.

As in `Tally`, but that `addresses` are the distinct addresses of accesses to global memory, summed
over warps, and `words` of these accesses are clocks of the L1 in units of 1 / `L1_CLOCK_PARTS`.
`bytes` are those of the elements that fetches of textures read, summed over lanes; in `used`, an
element that several lanes of a warp read counts once."""

L1_CLOCK_PARTS = 16
"""Parts of a clock of the L1 that loads are counted in: the mean of as many places in memory."""

Counts = Annotated[Value, (S64, len(COUNTERS))]
"""A row of the counters."""
Cost = Annotated[Value, (U16, len(COUNTERS))]
"""What one warp adds to the counters."""

_WORD_ALIGNMENTS = 4  # a bank of shared memory and an interleaved word of local memory have 4 bytes
_SHARED_COSTS = 3 * LINE_BYTES
FIRST_COST = {
    "global": 0,
    "global of 8 bytes": LINE_BYTES,
    "global of 16 bytes": 2 * LINE_BYTES,
    "shared": _SHARED_COSTS,
    "local": _SHARED_COSTS + 5 * _WORD_ALIGNMENTS,
    "const": _SHARED_COSTS + 11 * _WORD_ALIGNMENTS,
    "in turn": _SHARED_COSTS + 11 * _WORD_ALIGNMENTS + 1,
}
"""Where the costs of a state space begin among the costs of a pattern.

In global memory, the first active lane's address modulo 128 is added; accesses of 8 and of 16 bytes
per lane or more have costs of their own. In shared and local memory,
this address modulo 4 and 4 times the binary logarithm of the width are added; the width is at most
16 and 32 bytes. For accesses to shared memory whose lanes take turns, which are aligned, the
logarithm alone is added."""

COSTS = FIRST_COST["in turn"] + 5
"""Costs of a pattern."""

MOST_PATTERNS = 1024
"""Patterns held by a context: a hash of the relative addresses gives two places for each."""

IRREGULAR = -(1 << 62)
"""The stride of a pattern that has none."""


class Pattern(Record):
    """The addresses of a warp relative to its first active lane, with their costs."""

    relative: NarrowLanes  # addresses less that of the first active lane; 0 where one is inactive
    mask: Word  # active lanes; 0 where the entry is empty
    ored: Word  # bitwise or of `relative`
    version: int  # a number that no other pattern has had
    low: int  # least of `relative`
    high: int  # greatest of `relative`
    stride: int  # bytes between neighbouring lanes where it is the same for all active lanes, else
    #              IRREGULAR; 0 for a single lane
    known: Annotated[Pointer[Byte], COSTS]  # which costs have been computed
    costs: Annotated[Pointer[Cost], COSTS]  # see FIRST_COST


class Site(Record):
    """A memory instruction of a program."""

    index: int  # of the instruction in the program
    offset: int  # added to each address, in bytes
    kind: Int32
    space: Int32
    element_bytes: Int32  # 1, 2, 4, 8 or 16
    vector: Int32  # elements per lane
    size: Int32  # bytes per lane
    counted_bytes: Int32  # see `DecodedInstruction`
    lanes_in_turn: Int32  # ibid.
    reach: Int32  # see `REACHES`
    pattern: Pointer[Pattern]  # the one that `resolve` found last for this site; null at first
    array: int  # index of the array in global memory that was accessed last


class Addresses(Record):
    """The addresses that a register holds in the lanes of a warp, resolved for some instructions.

    These instructions access one state space, which may be generic, each with its own offset.
    """

    address: Lanes  # as the register holds them; filled in before `resolve`
    mask: int  # active lanes
    warp: int
    space: int  # where all active lanes lie; generic if they lie in several spaces
    first: int  # address of the first active lane in that space
    low: int  # least address of an active lane in that space
    high: int
    base: Address  # host address of the byte at address 0 of that space for this warp
    remote: int  # 1 where that is shared memory of another block of the cluster
    pattern: Pointer[Pattern]  # null where lanes lie in several spaces or far apart
    version: int  # of the pattern, whose place another may have taken since


class Fault(Record):
    """The first access at fault: that of the first instruction, and there of the first warp."""

    index: int  # of the instruction; -1 for none
    warp: int
    space: int  # where the access went; never generic
    mask: int
    address: Lanes  # with the offset, in that space; in shared memory, as `place_in_cluster` has it


STRETCH_KINDS = ("code", "branch", "exit", "barrier", "python", "end")
"""What lies at a slot, by number in `Stretch`: code to run, an instruction of control, one that
Python executes, or the program's end."""


class Slot(Record):
    """A slot: a place in the program where groups of lanes may be."""

    code: Address  # 0 for none
    number: int  # of the stretch among those of the code
    start: int  # first instruction
    stop: int  # behind the last one
    next: int  # the slot at `stop`; 0 at the end of the program, where there is no instruction
    target: int  # the slot of a branch's target
    kind: int
    guard: int  # where the guard of the first instruction lies in a frame; -1 for none
    negated: int
    order: int  # place in the order in which groups run
    clock: int  # what it adds to the clock
    waits: int  # whether it is a collective that waits for the members of its mask
    polls: int  # whether a branch closes a loop that polls memory
    loop: int  # the number of the loop that begins here; -1 for none
    closes: int  # the number of the loop whose head a branch leads back to; -1 for none
    check: Pointer[
        Check
    ]  # of its one instruction, before it is executed: see `check_code`; or null


class Event(Record):
    """An execution of an instruction by a group of lanes that accessed global memory."""

    run: int
    index: int


class Access(Record):
    """The part of a warp in an event."""

    base: int  # address of the first active lane without the instruction's offset
    event: Int32  # number of its event
    sectors: Int32  # where its distinct sectors begin: ascending, counted from the line of the
    #                 first lane's address
    warp: Half
    count: Half  # how many sectors
    passes: Half  # of an atomic: see `sector_passes`
    phase: Half  # the first active lane's byte in its sector


class LastAccess(Record):
    """What was recorded last of an instruction."""

    run: int  # 0 at first
    event: int
    sectors: int
    count: int
    passes: int
    version: int  # of the pattern of its addresses
    moved: int  # bytes from the line of the first lane's address to where it accesses


class LineAccess(Record):
    """The access of a warp to a 128-byte line of global or local memory."""

    place: int  # 16 times the number of the line, with a bit per sector; for local memory, see
    #             LOCAL_LINES
    run: Int32
    index: Int32
    warp: Int32


class ConstantAccess(Record):
    """The access of a warp to a line of constant memory."""

    line: Int32  # its number, from the start of constant memory
    index: Int32
    warp: Half
    begins: Half  # 1 for the first line of the access, 0 for others that lanes read


CONSTANT_LINE_BYTES = 64
"""Of the constant caches (Jia et al., arXiv 1804.06826: 64 bytes on Volta)."""

UNROLLINGS = (1, 2, 4, 8, 16, 32)
"""How often the body of a loop may follow itself in the machine code."""
TRIP_CLASSES = UNROLLINGS[-1]
"""The number of a trip, from 1, is counted modulo this, which all unrollings divide."""
TRIP_COLUMNS = TRIP_CLASSES + len(UNROLLINGS)
"""Trips by the remainder of their number, and those whose number is one of `UNROLLINGS`."""
REST_COLUMNS = sum(UNROLLINGS[1:])
"""The trips that remain after whole rounds, for each of `UNROLLINGS` but 1: 0 to one less."""

LOCAL_LINES = 1 << 56
"""The least number of a line of local memory in `LineAccess`.

The word that all lanes of a warp access is added: it lies in a line by itself, since local memory
is interleaved by word. Lines of global memory have lower numbers."""


class Range(Record):
    """Instructions that warps executed one behind the other; a bit per warp of the first block."""

    start: int
    stop: int
    warps: int


class Groups(Record):
    """Groups of lanes that do not run, at most one per slot."""

    masks: Pointer[Word]  # per warp, a row per slot
    present: Pointer[int]  # per slot: whether there is a group
    slots: Pointer[int]  # the slots with a group, in any order
    count: int  # how many


class Context(Record):
    """All that the machine code needs to run a chunk of blocks."""

    # --- The running blocks
    frames: Address  # registers: `frame_bytes` per warp
    frame_bytes: int
    warps: int
    warps_per_block: int
    cluster_blocks: int
    peers: Pointer[int]  # per block: the numbers of the blocks of its cluster, by their ranks
    clock: int  # what %clock64 reads next
    steps: int  # instructions of the program
    # --- Memory
    segments: Annotated[Pointer[Segment], len(SPACES) - 1]
    arrays: Pointer[Array]  # by ascending address
    array_count: int
    units_written: Pointer[
        Half
    ]  # per unit of global memory, from GLOBAL_BASE on: the `writer` that
    #                               stored to it last, or 0
    writer: int  # number of these blocks as writers, from 1
    first_writer: int  # the lowest number of those that run at the same time
    conflict: int  # whether another one of these has written to a unit
    unit_shift: int  # binary logarithm of the bytes of a unit
    sites: Pointer[Site]
    variables: Pointer[int]  # addresses of the program's variables in global memory
    counters: Pointer[Counts]  # one per instruction
    remote_requests: Pointer[int]  # per instruction: accesses to shared memory of other blocks
    remote_sectors: Pointer[int]
    receivers: Pointer[int]  # per instruction: blocks that each lane's copy was written to
    patterns: Pointer[Pattern]  # MOST_PATTERNS entries
    version: int  # of the pattern that was found last
    lanes_off: Pointer[int]  # per instruction: lanes that its guard switched off
    slow_lanes: Pointer[int]  # per instruction: lanes whose operands take a slow path
    slow_warps: Pointer[int]  # per instruction: warps with such lanes
    taken_lanes: Pointer[int]  # per instruction of control: lanes that branch, exit or wait
    taken_warps: Pointer[int]  # the same of warps with such lanes
    parted_warps: Pointer[int]  # per instruction of control: warps of which other lanes go on
    fault: Fault
    run: int  # number of the stretch's execution: later ones have higher numbers
    # --- The trace of accesses to global memory: see `trace_code`
    events: Pointer[Event]  # null where nothing is recorded
    event_count: int  # events so far, recorded or not
    event_limit: int  # how many fit
    accesses: Pointer[Access]
    access_count: int
    access_limit: int  # 0 once something did not fit
    sectors: Pointer[Int32]  # distinct sectors of accesses, see `Access`
    sector_count: int
    sector_limit: int
    last_accesses: Pointer[LastAccess]  # one per instruction
    # --- The trace of lines: see `trace_code`
    lines: Pointer[LineAccess]  # null where none are recorded; else `events` is not null
    line_count: int
    line_limit: int  # how many fit
    line_share: int  # a line is recorded if its hash is less: of 2^31
    lines_lost: int  # how many did not fit
    last_runs: Pointer[Int32]  # per warp: the run of its last access
    # --- The trace of constant memory: see `trace_code`
    constants: Pointer[ConstantAccess]  # null where none are recorded; else `events` is not null
    constant_count: int
    constant_limit: int  # how many fit
    # --- Scheduling: see `schedule_code`
    slot: int  # where the running group is
    limit: int  # the slot where it must stop, since another group has to run; -1 for none
    mask: Pointer[Word]  # its lanes, per warp
    lanes_running: int  # how many lanes it has
    warps_running: int
    live: Pointer[Word]  # lanes that have not exited, per warp
    lanes_live: int
    taken: Pointer[Word]  # lanes whose guard holds at the current branch, per warp
    ready: Groups
    parked: Groups  # those that wait at a barrier
    stretches: Pointer[Slot]  # one per slot
    order_starts: Pointer[int]  # slots of basic blocks where `BasicBlockOrder` is needed
    order_count: int  # how many; 0 where groups run in the order of slots
    depth: int  # where the register that tells the depth of calls lies in a frame; -1 for none
    opens_barriers: int  # whether all barriers open when no group can run
    others_wait: int  # whether groups wait that only Python knows
    asks_python: int  # whether Python must execute the instruction of the current slot
    has_arrived: int  # whether the group may execute a collective with lanes missing
    work_left: int  # warps times stretches until control returns to Python
    lanes_change: Pointer[int]  # per instruction and the end: lanes more than before it
    warps_change: Pointer[int]
    warp_work: Pointer[int]  # per warp: instructions that it has executed, but for control
    # --- The path of a block's warps: ranges of instructions that they executed
    path: Pointer[Range]  # null where none is recorded
    path_first: int  # the first warp of the block
    path_count: int
    path_limit: int  # how many fit
    path_continues: int  # whether the next range continues the last one
    path_lengths: Pointer[int]  # per warp of the block: instructions of its path
    path_warps: Pointer[int]  # its executions of each instruction: changes from the one before
    path_lanes: Pointer[int]  # the same of its lanes
    # --- How often loops are repeated each time they are entered: see `count_trip`
    loops: int  # of the program
    trips: Pointer[int]  # per loop: the trip that the lanes make which are in it
    next_trips: Pointer[int]  # per loop: trips of the lanes that branch back to its head; else 0
    trip_lanes: Pointer[int]  # per loop, `TRIP_COLUMNS`: executions of its head by lanes
    trip_warps: Pointer[int]  # the same by warps
    path_trip_lanes: Pointer[int]  # per warp of the followed block and loop, the same of its lanes
    path_trip_warps: Pointer[int]
    # --- How many trips remain behind whole rounds of a loop: see `count_leaving`
    parted: Pointer[int]  # per loop: whether lanes have left it before the others
    left_at: Pointer[Word]  # per loop and warp: the remainders of the trips at which lanes left
    rests: Pointer[int]  # per loop, `REST_COLUMNS`: warps by the most trips that remain for a lane
    path_rests: Pointer[int]  # per warp of the followed block and loop, the same


ARRAY, PATTERN, SITE, ADDRESSES, STRETCH = map(dtype_of, (Array, Pattern, Site, Addresses, Slot))
EVENT, ACCESS, LAST_ACCESS, LINE_ACCESS, CONSTANT_ACCESS, RANGE, CONTEXT, FAULT = map(
    dtype_of, (Event, Access, LastAccess, LineAccess, ConstantAccess, Range, Context, Fault)
)
"""The records as NumPy's structured types."""
