"""Calls the runtime's memory functions on a small memory, and says what they must do.

The memory of all state spaces lies in one array of bytes with bytes between them that no access may
touch. `Memory.expect` computes what an access does lane by lane in plain Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import (
    ACCESS,
    ADDRESSES,
    ARRAY,
    CONTEXT,
    COUNTERS,
    EVENT,
    LAST_ACCESS,
    MOST_PATTERNS,
    PATTERN,
    SITE,
    SITE_KINDS,
    SPACES,
)
from memlab.device.emulator.codegen.llvm import Library, compile_module
from memlab.device.emulator.codegen.memory_code import MEMORY
from memlab.device.emulator.isa.address_space import (
    CLUSTER,
    GLOBAL_BASE,
    OWN_BLOCK,
    WINDOW_BYTES,
    WINDOWS,
)
from memlab.device.properties import WARP_SIZE
from tests.reference.access_costs import count_local, count_sectors, count_wavefronts

Ints = NDArray[np.int64]

WARPS, WARPS_PER_BLOCK, UNIT_BYTES = 4, 2, 4
ARRAYS = ((0, 4096), (8192, 1000), (12288, 0), (12800, 64), (13312, 16384))
"""Arrays of global memory: bytes from `GLOBAL_BASE` on, and size in bytes."""
SIZES = {"shared": 2000, "local": 64, "const": 300, "param": 100, "param::func": 32}
"""Bytes of the other state spaces that a lane may access."""
_GAP = 256
_GLOBAL_BYTES = 30000


@dataclass(frozen=True)
class Site:
    """A memory instruction."""

    kind: str
    space: str
    element_bytes: int = 4
    vector: int = 1
    offset: int = 0
    counted_bytes: int | None = None
    index: int = 3
    lanes_in_turn: bool = False

    @property
    def size(self) -> int:
        """Bytes per lane."""
        return self.element_bytes * self.vector


@dataclass(frozen=True)
class Part:
    """The lanes of an access in one state space, with their addresses there, by lane."""

    space: str
    address: dict[int, int]


class Memory:
    """The memory of four warps in two blocks, and the context that describes it."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.places: dict[str, int] = {}
        shared, lanes = 2048, WARPS * WARP_SIZE
        spans = {
            "global": _GLOBAL_BYTES,
            "shared": shared * (WARPS // WARPS_PER_BLOCK),
            **{name: SIZES[name] * lanes for name in ("local", "param::func")},
            **{name: SIZES[name] for name in ("const", "param")},
        }
        end = _GAP
        for name, span in spans.items():
            self.places[name] = end
            end += -(-span // 16) * 16 + _GAP
        self.bytes = random.integers(0, 256, end, np.uint8)
        self.block_bytes = {"shared": shared}
        self.lane_bytes = {name: SIZES[name] for name in ("local", "param::func")}
        self.written = np.zeros(_GLOBAL_BYTES // UNIT_BYTES + 2 * _GAP, np.uint16)
        self.counters = np.zeros((8, len(COUNTERS)), np.int64)
        self.context = np.zeros(1, CONTEXT)
        self.trace: dict[str, NDArray[Any]] = {}
        self._sites: dict[Site, NDArray[Any]] = {}
        self.patterns = np.zeros(MOST_PATTERNS, PATTERN)
        bounds = [(s + GLOBAL_BASE, s + GLOBAL_BASE + n, 0, 0) for s, n in ARRAYS]
        self._arrays = np.array(bounds, ARRAY)
        context = self.context[0]
        segments = context["segments"]
        for number, name in enumerate(SPACES[:-1]):
            base = self.bytes.ctypes.data + self.places[name]
            segments[number]["base"] = (
                base - (GLOBAL_BASE if name == "global" else 0) & (1 << 64) - 1
            )
            segments[number]["size"] = SIZES.get(name, 0)
            segments[number]["block_bytes"] = self.block_bytes.get(name, 0)
            segments[number]["lane_bytes"] = self.lane_bytes.get(name, 0)
            segments[number]["read_only"] = name in ("const", "param")
        context["warps"], context["warps_per_block"] = WARPS, WARPS_PER_BLOCK
        self._peers = np.arange(WARPS // WARPS_PER_BLOCK)
        context["cluster_blocks"], context["peers"] = 1, self._peers.ctypes.data
        context["arrays"], context["array_count"] = self._arrays.ctypes.data, len(ARRAYS)
        context["units_written"] = self.written[_GAP:].ctypes.data
        context["writer"], context["first_writer"] = 1, (1 << 16) - 1
        context["unit_shift"] = UNIT_BYTES.bit_length() - 1
        context["counters"] = self.counters.ctypes.data
        context["patterns"] = self.patterns.ctypes.data
        context["fault"]["index"] = -1

    @property
    def fault(self) -> Any:
        """The record of the first fault."""
        return self.context[0]["fault"]

    def start_trace(self, events: int, accesses: int, sectors: int) -> None:
        """Record accesses to global memory, as far as so many items have room."""
        self._last_accesses = np.zeros(8, LAST_ACCESS)
        self.context["last_accesses"] = _at(self._last_accesses)
        for name, limit, count, kind in (
            ("events", "event_limit", events, EVENT),
            ("accesses", "access_limit", accesses, ACCESS),
            ("sectors", "sector_limit", sectors, np.int32),
        ):
            self.trace[name] = np.zeros(count + _GAP, kind)
            self.context[name], self.context[limit] = _at(self.trace[name]), count

    # --- Calls ---------------------------------------------------------------------------------

    def resolve(self, site: Site, address: Ints, mask: int, warp: int = 0) -> Resolved:
        """Resolve addresses."""
        resolved = Resolved(self, mask)
        resolved.record[0]["address"] = address
        arguments = (_at(self.context), _at(resolved.record), self.site(site))
        functions()["resolve"](*arguments, mask, warp)
        return resolved

    def load(self, site: Site, address: Ints, mask: int, warp: int = 0) -> NDArray[np.uint8] | None:
        """The bytes that lanes load, shape (vector, 32, element bytes); None for a fault."""
        return self.resolve(site, address, mask, warp).load(site)

    def site(self, site: Site) -> int:
        """The host address of an instruction's record, which outlives its accesses."""
        if site not in self._sites:
            record = np.zeros(1, SITE)
            counted = site.size if site.counted_bytes is None else site.counted_bytes
            for name, value in {
                "index": site.index,
                "offset": site.offset,
                "kind": SITE_KINDS.index(site.kind),
                "space": SPACES.index(site.space),
                "element_bytes": site.element_bytes,
                "vector": site.vector,
                "size": site.size,
                "counted_bytes": counted,
                "lanes_in_turn": site.lanes_in_turn,
                "reach": CLUSTER if site.space == "generic" else OWN_BLOCK,
            }.items():
                record[name] = value
            self._sites[site] = record
        return _at(self._sites[site])

    # --- What is expected ----------------------------------------------------------------------

    def parts(self, site: Site, address: Ints, mask: int) -> list[Part]:
        """The lanes by state space, in the order in which the spaces are checked."""
        active = {lane: int(address[lane]) for lane in range(WARP_SIZE) if mask >> lane & 1}
        moved = {lane: _wrapped(value + site.offset) for lane, value in active.items()}
        if site.space != "generic":
            return [Part(site.space, moved)]
        parts = []
        for name, start in WINDOWS.items():
            inside = {k: v for k, v in moved.items() if start <= v < start + WINDOW_BYTES}
            moved = {k: v for k, v in moved.items() if k not in inside}
            window = 0 if name == "global" else start
            parts.append(Part(name, {k: v - window for k, v in inside.items()}))
        parts.append(Part("global", moved))
        return [part for part in parts if part.address]

    def first_fault(self, site: Site, parts: Sequence[Part]) -> Part | None:
        """The first part with a lane at fault."""
        for part in parts:
            if site.kind != "load" and part.space in ("const", "param"):
                return part
            for address in part.address.values():
                if address % site.size or not _is_inside(part.space, address, site.size):
                    return part
        return None

    def place(self, space: str, address: int, lane: int, warp: int) -> int:
        """Where the byte at an address lies in `bytes`."""
        if space == "global":
            return self.places[space] + address - GLOBAL_BASE
        of_block = warp // WARPS_PER_BLOCK * self.block_bytes.get(space, 0)
        of_lane = (warp * WARP_SIZE + lane) * self.lane_bytes.get(space, 0)
        return self.places[space] + of_block + of_lane + address

    def units(self, parts: Sequence[Part], size: int) -> NDArray[np.uint8]:
        """`written` after a store to these parts alone."""
        marks = np.zeros_like(self.written)
        for part in parts:
            for address in part.address.values() if part.space == "global" else ():
                first = (address - GLOBAL_BASE) // UNIT_BYTES + _GAP
                marks[first : first + max(size // UNIT_BYTES, 1)] = 1
        return marks


class Resolved:
    """Resolved addresses."""

    def __init__(self, memory: Memory, mask: int) -> None:
        self.memory, self.mask = memory, mask
        self.record = np.zeros(1, ADDRESSES)

    def _call(self, name: str, site: Site, mask: int | None, data: NDArray[Any]) -> int:
        mask = self.mask if mask is None else mask
        context, record = _at(self.memory.context), _at(self.record)
        failed: int = functions()[name](context, record, self.memory.site(site), mask, _at(data))
        return failed

    def load(self, site: Site, mask: int | None = None) -> NDArray[np.uint8] | None:
        """As `Memory.load`."""
        room = np.full(site.size * WARP_SIZE + 2 * _GAP, 0xA5, np.uint8)
        buffer = room[_GAP:-_GAP]
        failed = self._call("load", site, mask, buffer)
        assert (room[:_GAP] == 0xA5).all()
        assert (room[-_GAP:] == 0xA5).all()
        return None if failed else buffer.reshape(site.vector, WARP_SIZE, site.element_bytes)

    def store(self, site: Site, values: NDArray[np.uint8], mask: int | None = None) -> bool:
        """Store such bytes; whether it succeeded."""
        return not self._call("store", site, mask, np.ascontiguousarray(values))

    def prepare_atomic(self, site: Site, mask: int | None = None) -> Ints | None:
        """The places of the lanes' elements in `Memory.bytes`; None for a fault."""
        pointers = np.zeros(WARP_SIZE, np.int64)
        failed = self._call("prepare_atomic", site, mask, pointers)
        return None if failed else pointers - _at(self.memory.bytes)


def expected_cost(site: Site, part: Part) -> list[int]:
    """What an access adds to the counters, computed by the reference."""
    width = site.size if site.counted_bytes is None else site.counted_bytes
    counts = dict.fromkeys(COUNTERS, 0)
    if width and part.space not in ("param", "param::func"):
        first = part.address[min(part.address)] - site.offset
        address = np.array(
            [part.address.get(lane, first + site.offset) for lane in range(WARP_SIZE)], object
        )
        line = first & ~127
        relative = (address - site.offset - line).astype(np.int64)[None]
        active, offset = np.ones(1, np.bool_), site.offset % 128
        counts["requests"] = 1
        if part.space == "shared":
            waves = count_wavefronts(address.tolist(), sorted(part.address), width)
            counts["wavefronts"] = waves.wavefronts
            counts["excessive"] = waves.wavefronts - waves.ideal
            counts["words"] = waves.words
        elif part.space == "local":
            sectors = count_local(relative, active, offset, width)
            counts["sectors"], counts["wavefronts"] = sectors.sectors, sectors.lines
        else:
            sectors = count_sectors(relative, active, offset)
            if part.space == "const":
                counts["wavefronts"] = sectors.addresses
            else:
                counts["sectors"], counts["wavefronts"] = sectors.sectors, sectors.lines
                counts["addresses"] = sectors.addresses
    return [counts[name] for name in COUNTERS]


def _is_inside(space: str, address: int, size: int) -> bool:
    if space != "global":
        return address >= 0 and address + size <= SIZES[space]
    start = address - GLOBAL_BASE
    return any(first <= start and start + size <= first + count for first, count in ARRAYS)


def _wrapped(value: int) -> int:
    """A number as a signed integer of 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _at(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


@cache
def functions() -> dict[str, Any]:
    """The compiled functions by name."""
    module = ir.Module()
    for function in MEMORY:
        function.declared(module)
    names = [function.name for function in MEMORY]
    library = Library([compile_module(module)], names)
    pointer, i32, i64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64
    types: dict[str, tuple[Any, ...]] = {"resolve": (None, pointer, pointer, pointer, i32, i64)}
    for name in names[1:]:
        types[name] = (ctypes.c_int32, pointer, pointer, pointer, i32, pointer)
    found = {name: library.function(name, *types[name]) for name in names}
    found["library"] = library
    return found
