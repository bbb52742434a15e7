"""Layout of what the checks of a launch share with the machine code that runs it: see `check_code`.

A pointer is null where there is nothing. Times and threads are those of the shadow memory: an entry
is the time of an access in its upper 32 bits, and its thread.
"""

from __future__ import annotations

from typing import Annotated

from memlab.device.emulator.codegen.records import (
    Byte,
    Int32,
    Pointer,
    Record,
    Word,
    dtype_of,
)
from memlab.device.properties import WARP_SIZE

TIME_SHIFT = 32
THREAD_MASK = (1 << TIME_SHIFT) - 1
"""The bits of an entry of the shadow memory that hold the thread; the others hold the time."""
PENDING_COPY_BIT = 1 << 62
"""Marks a pending asynchronous copy, as later than any time; a completed copy has no mark."""
THREAD_BITS = 10
"""A block has at most 1024 threads: a thread's number is its block's number, then ten bits."""
WARP_BITS = WARP_SIZE.bit_length() - 1
"""The bits of a thread's number that tell the threads of a warp apart."""

WEAK, VOLATILE, STRONG = range(3)
"""Levels of an access. Two accesses race unless one is strong and the other at least volatile, they
are of the same size, and the scope of each includes the other's thread (PTX ISA, "Morally strong
operations")."""
LEVEL_MASK = 3
"""The bits of an access's order that hold its level."""
BLOCK_SCOPE_BIT = 4
"""The bit of an order that tells that the access is strong within its block only."""
SIZE_SHIFT = 3
"""Above this bit an order holds the bytes of an element, as a binary logarithm plus one; 0 where
the access goes with accesses of any size."""

CHECK_KINDS = ("load", "store", "atomic", "barrier", "warp barrier", "collective", "other")
"""What a check is of, by number in `Check`."""

MEMCHECK, INITCHECK, RACECHECK = 1, 2, 4
"""The tools that look at accesses, as bits."""
EVERY_TOOL = MEMCHECK | INITCHECK | RACECHECK


class CheckedSpace(Record):
    """The shadow memory of a state space."""

    origin: int  # address of its first byte
    unit_shift: int  # binary logarithm of the bytes of a unit
    is_shared_by_blocks: int
    unwritten: Pointer[Byte]  # per unit: whether nothing was stored there
    written: Pointer[int]  # an entry per unit: the last store
    reads: Annotated[Pointer[Pointer[int]], 3]  # the last read, that of another thread, that of
    #                                             another warp
    updates: Annotated[Pointer[Pointer[int]], 3]  # the same of atomic operations
    block_bytes: int  # distance between the parts of two blocks
    lane_bytes: int  # distance between the parts of two lanes
    scratch: Pointer[Int32]  # per unit
    last_write: int  # no entry in `written` is later
    last_read: int
    last_update: int


class Footprint(Record):
    """What lanes touch in a state space, wherever the first of them begins."""

    version: int  # how often it has been made
    space: Pointer[CheckedSpace]  # in which it lies; null where the record is empty
    size: int  # bytes per lane
    mask: Pointer[Word]  # per warp: the lanes
    relative: Pointer[Int32]  # per lane: its address less that of the first of these lanes
    low: int  # least of them
    high: int  # greatest of them
    ored: int  # bitwise or of them
    count: int  # of units, each of which is there once
    units: Pointer[Int32]  # units less that of the first lane's address
    lanes: Pointer[Int32]  # the last lane that touches each
    others: Pointer[Int32]  # the first lane of another thread that touches it too, or -1
    warps: Pointer[Int32]  # the first lane of another warp
    is_contended: int  # whether there are others


class CheckState(Record):
    """What the checks of all instructions have in common."""

    lanes: int  # the threads of the running blocks
    time: Pointer[int]  # the time of the last access
    times: int  # how many fit into `steps` and `orders`
    steps: Pointer[Int32]  # by time: the instruction
    orders: Pointer[Byte]  # by time: its memory order
    threads: Pointer[int]  # per lane
    clocks: Pointer[int]  # per lane: up to which time it knows its block
    least_clock: int  # least of them
    group: int  # lanes that may wait for each other apart from the block; 0 for none
    group_clocks: Pointer[int]  # per group: up to which time all know all of the group
    pair_clocks: Pointer[Int32]  # per group, lane and other lane: what one knows of the other
    store_times: Pointer[int]  # per lane: the time of its last store
    fence_times: Pointer[int]  # per lane: the time of its last proxy fence
    async_writes: Pointer[Byte]  # per instruction: whether it writes through the async proxy
    places: Pointer[int]  # per lane: the instruction where it waited last
    has_marks: int  # whether a register holds an undefined value
    footprints: Pointer[Footprint]
    footprint_count: int
    oldest: int  # number of the footprint that gives way to the next one
    found: Pointer[Footprint]  # that of the instruction that was checked last
    left: int  # the tools that must look at it, as `EVERY_TOOL` has them


class Check(Record):
    """The check of a watched instruction."""

    kind: int
    index: int  # the instruction
    order: int  # its memory order: level, scope and size
    state: Pointer[CheckState]
    space: Pointer[CheckedSpace]
    register: int  # where the address register lies in a frame; -1 for none
    bits: int  # its width
    offset: int  # added to the register, in bytes; the address where there is none
    size: int  # bytes per lane
    arrays: Pointer[int]  # pairs: the arrays that may be accessed, and their ends
    array_count: int
    needs_written: int  # whether it may read what was never written
    may_race: int
    is_noncoherent: int  # whether it loads through the read-only cache, or reads a tensor map
    is_async_read: int  # whether it loads through the async proxy (`wgmma`)
    uses_marks: int  # whether an undefined value of a register may reach it
    footprint: Pointer[Footprint]  # that of its last execution
    exchange_times: Pointer[int]  # of an exchange, per warp: the time of its last execution
    exchange_partners: Pointer[Int32]  # per lane: the lanes with which it executed it, as bits


CHECKED_SPACE, FOOTPRINT, CHECK_STATE, CHECK = map(
    dtype_of, (CheckedSpace, Footprint, CheckState, Check)
)
"""The records as NumPy's structured types."""
