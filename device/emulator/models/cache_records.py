"""What the machine code of the caches (`cache_code`, `l1_code`) works on."""

from __future__ import annotations

from memlab.device.emulator.codegen.records import Int32, Pointer, Record

NONE = -1
HASH = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 over the golden ratio (Knuth, TAOCP 3, 6.4)
HASH_BITS = 64
WAYS = 4
"""Lines of a set of an L1 (docs/results/h200-replaced-lines.csv)."""


class Line(Record):
    """A line of a cache."""

    number: int
    valid: Int32  # a bit per sector that it holds
    dirty: Int32  # a bit per sector that memory must get
    newer: Int32  # the line that was used after this one; -1 for none
    older: Int32
    chained: Int32  # the next one with the same hash, or in the set
    asked: int  # when sectors of it were asked for last; -1 for never
    asker: int  # by which multiprocessor and instruction: see `_MULTIPROCESSORS`
    coming: Int32  # a bit per sector that they asked for then
    remote: Int32  # those among them that come from memory
    time: int  # of the last read
    readers: int  # how many reads of each sector there were at that time: 16 bits each
    once: Int32  # of an L1: 1 for a line that is replaced before others
    kept: Int32  # 1 for a line that was found again and stays for it


class Cache(Record):
    """A cache in which a line can be anywhere."""

    lines: Pointer[Line]
    heads: Pointer[Int32]  # by hash: the first line of the chain, or -1
    hash_shift: int  # how far a hash of 64 bits is shifted
    capacity: int  # how many lines it holds
    count: int  # how many it has
    newest: int
    oldest: int
    latest: int  # the line that was used last
    written_back: int  # sectors that memory got


class L1(Record):
    """An L1, whose lines are in sets of `WAYS`."""

    lines: Pointer[Line]  # those of a set are neighbours
    heads: Pointer[Int32]  # by set: the first line of its order, or -1
    sets: int
    capacity: int  # how many lines all sets hold together
    count: int  # how many they have
    hand: int  # the set that loses a line next where they have all
