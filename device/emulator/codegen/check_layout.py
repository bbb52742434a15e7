"""Layout of what the checks of a launch share with the machine code that runs it: see `check_code`.

A pointer is an unsigned 64-bit integer; 0 where there is nothing. Times and threads are those of
the shadow memory: an entry is the time of an access in its upper 32 bits, and its thread.
"""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.codegen.layout import POINTER
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
"""Levels of an access. Two accesses race unless one is strong and the other at least volatile."""

CHECK_KINDS = ("load", "store", "atomic", "barrier", "warp barrier", "collective", "other")
"""What a check is of, by number in `CHECK`."""

CHECKED_SPACE = np.dtype(
    [
        ("origin", "i8"),  # address of its first byte
        ("unit_shift", "i8"),  # binary logarithm of the bytes of a unit
        ("is_shared_by_blocks", "i8"),
        ("unwritten", POINTER),  # a byte per unit: whether nothing was stored there
        ("written", POINTER),  # an entry per unit: the last store
        ("reads", POINTER, 3),  # the last read, that of another thread, that of another warp
        ("updates", POINTER, 3),  # the same of atomic operations
        ("block_bytes", "i8"),  # distance between the parts of two blocks
        ("lane_bytes", "i8"),  # distance between the parts of two lanes
        ("scratch", POINTER),  # i32 per unit
        ("last_write", "i8"),  # no entry in `written` is later
        ("last_read", "i8"),
        ("last_update", "i8"),
    ]
)
"""The shadow memory of a state space."""

FOOTPRINT = np.dtype(
    [
        ("version", "i8"),  # how often it has been made
        ("space", POINTER),  # the `CHECKED_SPACE` that it lies in; 0 where the record is empty
        ("size", "i8"),  # bytes per lane
        ("mask", POINTER),  # u32 per warp: the lanes
        ("relative", POINTER),  # i32 per lane: its address less that of the first of these lanes
        ("low", "i8"),  # least of them
        ("high", "i8"),  # greatest of them
        ("ored", "i8"),  # bitwise or of them
        ("count", "i8"),  # of units, each of which is there once
        ("units", POINTER),  # i32: units less that of the first lane's address
        ("lanes", POINTER),  # i32: the last lane that touches each
        ("others", POINTER),  # i32: the first lane of another thread that touches it too, or -1
        ("warps", POINTER),  # i32: the first lane of another warp
        ("is_contended", "i8"),  # whether there are others
    ]
)
"""What lanes touch in a state space, wherever the first of them begins."""

CHECK_STATE = np.dtype(
    [
        ("lanes", "i8"),  # the threads of the running blocks
        ("time", POINTER),  # i64: the time of the last access
        ("times", "i8"),  # how many fit into `steps` and `levels`
        ("steps", POINTER),  # i32 by time: the instruction
        ("levels", POINTER),  # i8 by time: its memory-order level
        ("threads", POINTER),  # i64 per lane
        ("clocks", POINTER),  # i64 per lane: up to which time it knows its block
        ("least_clock", "i8"),  # least of them
        ("group", "i8"),  # lanes that may wait for each other apart from the block; 0 for none
        ("group_clocks", POINTER),  # i64 per group: up to which time all know all of the group
        ("pair_clocks", POINTER),  # i32 per group, lane and other lane: what one knows of the other
        ("store_times", POINTER),  # i64 per lane: the time of its last store
        ("places", POINTER),  # i64 per lane: the instruction where it waited last
        ("has_marks", "i8"),  # whether a register holds an undefined value
        ("footprints", POINTER),  # `FOOTPRINT` records
        ("footprint_count", "i8"),
        ("oldest", "i8"),  # number of the footprint that gives way to the next one
        ("found", POINTER),  # the footprint of the instruction that was checked last
    ]
)
"""What the checks of all instructions have in common."""

CHECK = np.dtype(
    [
        ("kind", "i8"),
        ("index", "i8"),  # the instruction
        ("level", "i8"),  # its memory-order level
        ("state", POINTER),
        ("space", POINTER),
        ("register", "i8"),  # where the address register lies in a frame; -1 for none
        ("bits", "i8"),  # its width
        ("offset", "i8"),  # added to the register, in bytes; the address where there is none
        ("size", "i8"),  # bytes per lane
        ("arrays", POINTER),  # pairs of i64: the arrays that may be accessed, and their ends
        ("array_count", "i8"),
        ("needs_written", "i8"),  # whether it may read what was never written
        ("may_race", "i8"),
        ("uses_marks", "i8"),  # whether an undefined value of a shuffle may reach it
        ("footprint", POINTER),  # that of its last execution
    ]
)
"""The check of a watched instruction."""
