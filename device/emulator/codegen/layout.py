"""Layout of the memory that Python and the machine code share, as NumPy's structured types.

Python makes the arrays and reads them; the machine code gets one pointer, to the `CONTEXT`. A
pointer is an unsigned 64-bit integer. `field_pointer`, `load_field` and `store_field` reach a field
from code under construction.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from memlab.device.properties import LINE_BYTES, WARP_SIZE

POINTER = "u8"
"""A host address."""

SPACES = ("global", "shared", "local", "const", "param", "param::func", "generic")
"""State spaces by their number in `SITE`."""

SITE_KINDS = ("load", "store", "atomic")
"""Kinds of memory instructions by their number in `SITE`; a reduction is an atomic."""

SEGMENT = np.dtype(
    [
        ("base", POINTER),  # of the byte at address 0
        ("size", "i8"),  # bytes that a lane may access
        ("block_bytes", "i8"),  # distance between the parts of two blocks (shared memory)
        ("lane_bytes", "i8"),  # distance between the parts of two lanes (local memory)
        ("read_only", "i8"),
    ]
)
"""A state space of the running blocks, but for global memory, whose bounds are in `ARRAY`.

A lane may access fewer than 2^30 bytes of it."""

ARRAY = np.dtype(
    [
        ("start", "i8"),  # address of the first byte
        ("end", "i8"),  # behind the last byte
        ("loaded", "i8"),  # whether a load has read from it
        ("stored", "i8"),  # whether a store, or an atomic operation, has written to it
    ]
)
"""An array in global memory."""

SITE = np.dtype(
    [
        ("index", "i8"),  # of the instruction in the program
        ("offset", "i8"),  # added to each address, in bytes
        ("kind", "i4"),
        ("space", "i4"),
        ("element_bytes", "i4"),  # 1, 2, 4, 8 or 16
        ("vector", "i4"),  # elements per lane
        ("size", "i4"),  # bytes per lane
        ("counted_bytes", "i4"),  # see `DecodedInstruction.counted_bytes`
        ("pattern", POINTER),  # the pattern that `resolve` found last for this site; 0 at first
        ("array", "i8"),  # index of the array in global memory that was accessed last
    ]
)
"""A memory instruction of a program."""

COUNTERS = ("requests", "sectors", "wavefronts", "excessive", "addresses", "", "", "")
"""The columns of the counters of memory instructions: 64-bit integers, a row per instruction.

As in `Tally`, but that `addresses` are the distinct addresses of accesses to global memory, summed
over warps."""

COST = np.dtype(("u2", len(COUNTERS)))
"""What one warp adds to `COUNTERS`."""

_WORD_ALIGNMENTS = 4  # a bank of shared memory and an interleaved word of local memory have 4 bytes
FIRST_COST = {
    "global": 0,
    "shared": LINE_BYTES,
    "local": LINE_BYTES + 5 * _WORD_ALIGNMENTS,
    "const": LINE_BYTES + 11 * _WORD_ALIGNMENTS,
}
"""Where the costs of a state space begin among the costs of a pattern.

In global memory, the first active lane's address modulo 128 is added. In shared and local memory,
this address modulo 4 and 4 times the binary logarithm of the width are added; the width is at most
16 and 32 bytes."""

COSTS = FIRST_COST["const"] + 1
"""Costs of a pattern."""

MOST_PATTERNS = 1024
"""Patterns held by a context: a hash of the relative addresses gives two places for each."""

IRREGULAR = -(1 << 62)
"""The stride of a pattern that has none."""

PATTERN = np.dtype(
    [
        ("relative", "i4", WARP_SIZE),  # addresses less that of the first active lane; 0 where a
        #                                 lane is inactive
        ("mask", "u4"),  # active lanes; 0 where the entry is empty
        ("ored", "u4"),  # bitwise or of `relative`
        ("version", "i8"),  # a number that no other pattern has had
        ("low", "i8"),  # least of `relative`
        ("high", "i8"),  # greatest of `relative`
        ("stride", "i8"),  # bytes between neighbouring lanes where it is the same for all active
        #                    lanes, else IRREGULAR; 0 for a single lane
        ("known", "u1", COSTS),  # which costs have been computed
        ("costs", COST, COSTS),  # see FIRST_COST
    ],
    align=True,
)
"""The addresses of a warp relative to its first active lane, with their costs, computed once."""

ADDRESSES = np.dtype(
    [
        ("address", "i8", WARP_SIZE),  # as the register holds them; filled in before `resolve`
        ("mask", "i8"),  # active lanes
        ("warp", "i8"),
        ("space", "i8"),  # where all active lanes lie; generic if they lie in several spaces
        ("first", "i8"),  # address of the first active lane in that space
        ("low", "i8"),  # least address of an active lane in that space
        ("high", "i8"),
        ("base", POINTER),  # host address of the byte at address 0 of that space for this warp
        ("pattern", POINTER),  # 0 where lanes lie in several spaces or far apart
        ("version", "i8"),  # of the pattern, whose place another may have taken since
    ]
)
"""The addresses that a register holds in the lanes of a warp, resolved for several instructions.

These instructions access one state space, which may be generic, each with its own offset."""

FAULT = np.dtype(
    [
        ("index", "i8"),  # of the instruction; -1 for no fault
        ("warp", "i8"),
        ("space", "i8"),  # where the access went; never generic
        ("mask", "i8"),
        ("address", "i8", WARP_SIZE),  # with the offset, in that space
    ]
)
"""The first access at fault: that of the first instruction, and there of the first warp."""

BOUNDS = np.dtype(
    [
        ("register", "i8"),  # where it lies in a frame
        ("bytes", "i8"),  # of a lane; 0 for a predicate, whose lanes must equal `low`
        ("low", POINTER),  # the least value by lane, as raw bits; a word per warp for a predicate
        ("span", POINTER),  # the greatest value less the least one
    ]
)
"""The values that a register may have: (value - low) modulo its width is `span` at most."""

CONDITIONS = np.dtype(
    [
        ("lanes", POINTER),  # u32 per warp: no other lanes take part
        ("bounds", POINTER),  # BOUNDS records of registers
        ("count", "i8"),  # how many
    ]
)
"""When Python need not look at an instruction."""

STRETCH_KINDS = ("code", "branch", "exit", "barrier", "python", "end")
"""What lies at a slot, by number in `STRETCH`: code to run, an instruction of control, one that
Python executes, or the program's end."""

STRETCH = np.dtype(
    [
        ("code", POINTER),  # 0 for none
        ("start", "i8"),  # first instruction
        ("stop", "i8"),  # behind the last one
        ("next", "i8"),  # the slot at `stop`
        ("target", "i8"),  # the slot of a branch's target
        ("kind", "i8"),
        ("guard", "i8"),  # where the guard of the first instruction lies in a frame; -1 for none
        ("negated", "i8"),
        ("order", "i8"),  # place in the order in which groups run
        ("clock", "i8"),  # what it adds to the clock
        ("waits", "i8"),  # whether it is a collective that waits for the members of its mask
        ("polls", "i8"),  # whether a branch closes a loop that polls memory
        ("conditions", POINTER),  # a CONDITIONS record: when code runs that Python executes; or 0
        ("check", POINTER),  # of its one instruction, before it is executed: see `check_code`
    ]
)
"""A slot: a place in the program where groups of lanes may be."""

EVENT = np.dtype([("run", "i8"), ("index", "i8")])
"""An execution of an instruction by a group of lanes that accessed global memory."""

ACCESS = np.dtype(
    [
        ("base", "i8"),  # address of the first active lane without the instruction's offset,
        #                  rounded down to its sector
        ("event", "i4"),  # number of its event
        ("sectors", "i4"),  # where its distinct sectors begin: ascending, counted from the line of
        #                     the first lane's address
        ("warp", "u2"),
        ("count", "u2"),  # how many sectors
    ],
    align=True,
)
"""The part of a warp in an event."""

LAST_ACCESS = np.dtype(
    [
        ("run", "i8"),  # 0 at first
        ("event", "i8"),
        ("sectors", "i8"),
        ("count", "i8"),
        ("version", "i8"),  # of the pattern of its addresses
        ("moved", "i8"),  # bytes from the line of the first lane's address to where it accesses
    ]
)
"""What was recorded last of an instruction."""

RANGE = np.dtype([("start", "i8"), ("stop", "i8"), ("warps", "i8")])
"""Instructions that warps executed one behind the other; a bit per warp of the first block."""

GROUPS = np.dtype(
    [
        ("masks", POINTER),  # u32 per warp, a row per slot
        ("present", POINTER),  # i64 per slot: whether there is a group
        ("slots", POINTER),  # i64: the slots with a group, in any order
        ("count", "i8"),  # how many
    ]
)
"""Groups of lanes that do not run, at most one per slot."""

CONTEXT = np.dtype(
    [
        # --- The running blocks
        ("frames", POINTER),  # registers: `frame_bytes` per warp
        ("frame_bytes", "i8"),
        ("warps", "i8"),
        ("warps_per_block", "i8"),
        ("clock", "i8"),  # what %clock64 reads next
        ("steps", "i8"),  # instructions of the program
        # --- Memory
        ("segments", SEGMENT, len(SPACES) - 1),
        ("arrays", POINTER),  # ARRAY records by ascending address
        ("array_count", "i8"),
        ("units_written", POINTER),  # u16 per unit of global memory, from GLOBAL_BASE on: the
        #                              `writer` that stored to it last, or 0
        ("writer", "i8"),  # number of these blocks as writers, from 1
        ("first_writer", "i8"),  # the lowest number of those that run at the same time
        ("conflict", "i8"),  # whether another one of these has written to a unit
        ("unit_shift", "i8"),  # binary logarithm of the bytes of a unit
        ("sites", POINTER),  # SITE records
        ("variables", POINTER),  # i64: addresses of the program's variables in global memory
        ("counters", POINTER),  # COUNTERS rows, one per instruction
        ("patterns", POINTER),  # MOST_PATTERNS entries of PATTERN
        ("version", "i8"),  # of the pattern that was found last
        ("lanes_off", POINTER),  # i64 per instruction: lanes that its guard switched off
        ("fault", FAULT),
        ("run", "i8"),  # number of the stretch's execution: later ones have higher numbers
        # --- The trace of accesses to global memory: see `trace_code`
        ("events", POINTER),  # EVENT records; 0 where nothing is recorded
        ("event_count", "i8"),  # events so far, recorded or not
        ("event_limit", "i8"),  # how many fit
        ("accesses", POINTER),  # ACCESS records
        ("access_count", "i8"),
        ("access_limit", "i8"),  # 0 once something did not fit
        ("sectors", POINTER),  # i32: distinct sectors of accesses, see ACCESS
        ("sector_count", "i8"),
        ("sector_limit", "i8"),
        ("last_accesses", POINTER),  # LAST_ACCESS records, one per instruction
        # --- Scheduling: see `schedule_code`
        ("slot", "i8"),  # where the running group is
        ("limit", "i8"),  # the slot where it must stop, since another group has to run; -1 for none
        ("mask", POINTER),  # its lanes: u32 per warp
        ("lanes_running", "i8"),  # how many lanes it has
        ("warps_running", "i8"),
        ("live", POINTER),  # lanes that have not exited: u32 per warp
        ("lanes_live", "i8"),
        ("taken", POINTER),  # lanes whose guard holds at the current branch: u32 per warp
        ("ready", GROUPS),
        ("parked", GROUPS),  # those that wait at a barrier
        ("stretches", POINTER),  # STRETCH records, one per slot
        ("order_starts", POINTER),  # i64: slots of basic blocks where `BasicBlockOrder` is needed
        ("order_count", "i8"),  # how many; 0 where groups run in the order of slots
        ("opens_barriers", "i8"),  # whether all barriers open when no group can run
        ("others_wait", "i8"),  # whether groups wait that only Python knows
        ("asks_python", "i8"),  # whether Python must execute the instruction of the current slot
        ("has_arrived", "i8"),  # whether the group may execute a collective with lanes missing
        ("work_left", "i8"),  # warps times stretches until control returns to Python
        ("lanes_change", POINTER),  # i64 per instruction and the end: lanes more than before it
        ("warps_change", POINTER),
        # --- The path of the first block's warps: ranges of instructions that they executed
        ("path", POINTER),  # RANGE records; 0 where none is recorded
        ("path_count", "i8"),
        ("path_limit", "i8"),  # how many fit
        ("path_continues", "i8"),  # whether the next range continues the last one
        ("path_lengths", POINTER),  # i64 per warp of the first block: instructions of its path
    ],
    align=True,
)
"""All that the machine code needs to run a chunk of blocks."""

_I64, _BYTE = ir.IntType(64), ir.IntType(8)
_WIDTHS = {"i8": 64, "u8": 64, "i4": 32, "u4": 32}


def field_pointer(
    b: ir.IRBuilder, record: ir.Value, layout: np.dtype[np.void], name: str
) -> ir.Value:
    """A pointer to a field of a record."""
    assert layout.fields is not None
    return b.gep(record, [_I64(layout.fields[name][1])], source_etype=_BYTE)


def field_type(layout: np.dtype[np.void], name: str) -> ir.IntType:
    """The LLVM type of a field, an integer."""
    assert layout.fields is not None
    return ir.IntType(8 * layout.fields[name][0].itemsize)


def load_field(b: ir.IRBuilder, record: ir.Value, layout: np.dtype[np.void], name: str) -> ir.Value:
    """The value of an integer field of a record; a pointer comes as an LLVM pointer."""
    assert layout.fields is not None
    kind = ir.PointerType() if is_pointer(layout, name) else field_type(layout, name)
    return b.load(field_pointer(b, record, layout, name), typ=kind, name=name)


def store_field(
    b: ir.IRBuilder, value: ir.Value, record: ir.Value, layout: np.dtype[np.void], name: str
) -> None:
    """Store an integer, or a pointer, into a field of a record."""
    b.store(value, field_pointer(b, record, layout, name))


def is_pointer(layout: np.dtype[np.void], name: str) -> bool:
    """Whether a field holds a host address."""
    assert layout.fields is not None
    return bool(layout.fields[name][0] == np.dtype(POINTER))


def element_pointer(b: ir.IRBuilder, array: ir.Value, index: ir.Value, item_bytes: int) -> ir.Value:
    """A pointer to an item of an array; `index` is an `i64`."""
    return b.gep(array, [b.mul(index, _I64(item_bytes))], source_etype=_BYTE)
