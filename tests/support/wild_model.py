"""What a launch of a `WildProgram` must do, in plain Python: lane by lane, byte by byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memlab.device.emulator.isa.address_space import WINDOW_BYTES, WINDOWS
from tests.support.wild_programs import (
    ACCESSES,
    MOST_THREADS,
    SLOT_BYTES,
    TURNS,
    Access,
    WildProgram,
)

WARP = 32
READ_ONLY = ("const", "param")


@dataclass
class Space:
    """A state space.

    Attributes:
        data: Its bytes, for all lanes.
        known: For each byte, 1 if `data` has its value, 0 if the result leaves it open.
        ranges: The start and end of each array in it.
        position: Where address 0 of a lane lies in `data`.
    """

    data: bytearray
    ranges: Sequence[tuple[int, int]]
    position: Callable[[int], int]
    known: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.known = bytearray(b"\1" * len(self.data))


@dataclass(frozen=True)
class Inputs:
    """What a launch has for each lane.

    Attributes:
        threads: Threads of a block; the lanes are the threads of all blocks, in order.
        lanes: How many.
        chosen: The numbers of the clusters that are executed.
        table: The addresses by turn, column and lane.
        guards: A word for each lane: a bit for each instruction whose guard holds.
        skips: A word for each lane: a bit for each cluster that it skips.
        trips: How many turns each lane takes, one or more.
        inputs: The arrays that may not be stored to, by their start; `check` alone knows them.
    """

    threads: int
    lanes: int
    chosen: frozenset[int]
    table: Sequence[Sequence[Sequence[int]]]
    guards: Sequence[int]
    skips: Sequence[int]
    trips: Sequence[int]
    inputs: frozenset[int]


@dataclass(frozen=True)
class Fault:
    """The fault that ends a launch.

    Attributes:
        number: The number of the instruction.
        kinds: How the message begins for each lane that it may name.
        what: What the message says of the access.
    """

    number: int
    kinds: Mapping[int, str]
    what: str


class Model:
    """The memory of a launch, and what becomes of it."""

    def __init__(
        self, program: WildProgram, spaces: Mapping[str, Space], inputs: Inputs, out: int
    ) -> None:
        """Prepare a launch; `out` is the address of the array of what lanes load."""
        self._program, self.spaces, self._inputs, self._out = program, spaces, inputs, out
        self.fault: Fault | None = None
        self.mistakes: Counter[tuple[int, str, str]] = Counter()
        self.stored: set[tuple[int, int]] = set()  # to global memory: address and size
        self._by_warp: dict[tuple[str, int], set[tuple[int, int]]] = {}
        self._open: set[tuple[str, int]] = set()
        self._is_ordered = True

    # --- Addresses -----------------------------------------------------------------------------

    def address(self, access: Access, value: int | None, space: str = "") -> int:
        """The address of a lane, in the state space that the opcode names.

        Args:
            access: The instruction.
            value: What the table has for its address register; None where there is none.
            space: `global` for the source of a copy.
        """
        if value is None:
            named = access.variable == "g"
            return (self.spaces["global"].ranges[-1][0] if named else 0) + access.offset
        if access.kind == "copy" and space == "global":
            return signed(value)
        value += access.shift
        return signed((signed(value, 32) if access.narrow else signed(value)) + access.offset)

    def problem(self, space: str, address: int, size: int, load: bool) -> str:
        """What is wrong with an access: `read only`, `misaligned`, `illegal`, or nothing."""
        if not load and space in READ_ONLY:
            return "read only"
        if address % size:
            return "misaligned"
        ranges = self.spaces[space].ranges
        inside = any(start <= address and address + size <= end for start, end in ranges)
        return "" if inside else "illegal"

    def _mistake(self, space: str, address: int, size: int, load: bool) -> str:
        """The same as `check` calls it, which also knows arrays that are only read."""
        if address % size:
            return "misaligned"
        for start, end in self.spaces[space].ranges:
            if start <= address and address + size <= end:
                fixed = space in READ_ONLY or (space == "global" and start in self._inputs.inputs)
                return "" if load or not fixed else "not writable"
        return "out of bounds"

    # --- Execution -----------------------------------------------------------------------------

    def run(self, checked: bool) -> None:
        """Execute the program, up to the first fault unless it is checked."""
        given = self._inputs
        for turn in range(TURNS):
            running = [lane for lane in range(given.lanes) if turn < given.trips[lane]]
            for number, cluster in enumerate(self._program.clusters):
                if number not in given.chosen:
                    continue
                lanes = running
                if not any(access.is_collective for access in cluster):
                    lanes = [lane for lane in running if not given.skips[lane] >> number & 1]
                self._run_cluster(cluster, turn, lanes, checked)
                if self.fault is not None:
                    return

    def _run_cluster(
        self, cluster: Sequence[Access], turn: int, lanes: Sequence[int], checked: bool
    ) -> None:
        self._by_warp.clear()
        self._open.clear()
        self._is_ordered = len(cluster) == 1
        for access in cluster:
            executing = [lane for lane in lanes if self._guard_holds(access, lane)]
            self._execute(access, turn, executing, checked)
        if self.fault is not None:  # how much of the cluster was executed is left open
            for space, position in self._touched(cluster, turn, lanes):
                self.spaces[space].known[position] = 0

    def _guard_holds(self, access: Access, lane: int) -> bool:
        bit = self._inputs.guards[lane] >> access.number & 1
        return not access.guard or bool(bit) == (access.guard == "@")

    def parts(
        self, access: Access, turn: int, lanes: Iterable[int]
    ) -> list[tuple[str, bool, int, dict[int, tuple[str, int]]]]:
        """The accesses of an instruction: opcode's space, load, size, and the lanes' places."""
        table = self._inputs.table[turn]
        parts = []
        if access.source_column is not None:
            column = table[access.source_column]
            places = {
                lane: ("global", self.address(access, column[lane], "global")) for lane in lanes
            }
            parts.append(("global", True, access.size, places))
        if access.is_collective:
            lanes = [lane for lane in lanes if self._thread(lane) % WARP < 8 * access.vector]
        values = None if access.column is None else table[access.column]
        places = {}
        for lane in lanes:
            address = self.address(access, None if values is None else values[lane])
            places[lane] = resolve(access.space, address)
        parts.append((access.space, access.is_load, access.size, places))
        return parts

    def _execute(self, access: Access, turn: int, lanes: Sequence[int], checked: bool) -> None:
        permitted: list[dict[int, tuple[str, int]]] = []
        for _, load, size, places in self.parts(access, turn, lanes):
            allowed = {}
            for lane, (space, address) in places.items():
                if checked:
                    mistake = self._mistake(space, address, size, load)
                    if mistake:
                        self.mistakes[access.number, space, mistake] += 1
                    else:
                        allowed[lane] = space, address
                elif not self.problem(space, address, size, load):
                    allowed[lane] = space, address
            if len(allowed) < len(places) and not checked and self.fault is None:
                self.fault = self._first_fault(access, places, size, load)
            permitted.append(allowed)
        if self.fault is not None:
            return
        operation = getattr(self, f"_{access.kind}")
        operation(access, turn, lanes, *permitted)

    def _first_fault(
        self, access: Access, places: Mapping[int, tuple[str, int]], size: int, load: bool
    ) -> Fault:
        """The fault of the first warp with one."""
        problems = {lane: self.problem(*place, size, load) for lane, place in places.items()}
        wrong = [lane for lane in problems if problems[lane]]
        first = min(self._warp(lane) for lane in wrong)
        begins = {"read only": "illegal", "misaligned": "misaligned", "illegal": "illegal"}
        kinds = {lane: begins[problems[lane]] for lane in wrong if self._warp(lane) == first}
        return Fault(access.number, kinds, f"{'read' if load else 'write'} of {size} bytes")

    # --- Instructions --------------------------------------------------------------------------

    def _load(self, access, turn, lanes, places) -> None:  # type: ignore[no-untyped-def]
        for lane in lanes:
            self._keep(access, turn, lane, *self._read(lane, places.get(lane), access.size))

    def _store(self, access, turn, lanes, places) -> None:  # type: ignore[no-untyped-def]
        for lane, place in places.items():
            self._write(access, lane, place, self._source(access, turn, lane))

    def _copy(self, access, turn, lanes, sources, places) -> None:  # type: ignore[no-untyped-def]
        read = {lane: self._read(lane, sources.get(lane), access.size) for lane in lanes}
        for lane, place in places.items():
            self._write(access, lane, place, *read[lane])

    def _atomic(self, access, turn, lanes, places) -> None:  # type: ignore[no-untyped-def]
        width = access.element_bytes
        update = _update_of(access.opcode)
        for lane in lanes:
            old, known = self._read(lane, places.get(lane), access.size)
            if access.kind == "atomic":
                self._keep(access, turn, lane, old, known)
            if lane not in places:
                continue
            new = bytearray()
            for element in range(access.vector):
                before = int.from_bytes(old[element * width : (element + 1) * width], "little")
                key = lane * TURNS + turn
                values = [
                    self._program.stored_value(access, source, element, key)
                    for source in range(access.sources)
                ]
                after = 0 if update is None else update(before, *values, 8 * width)
                new += (after % (1 << 8 * width)).to_bytes(width, "little")
            known = bytes(len(known)) if update is None or 0 in known else known
            self._write(access, lane, places[lane], bytes(new), known)

    _reduce = _atomic

    def _ldmatrix(self, access, turn, lanes, places) -> None:  # type: ignore[no-untyped-def]
        for warp, full in self._warps(lanes):
            rows = [self._read(lane, places.get(lane), 16) for lane in warp[: 8 * access.vector]]
            for index, lane in enumerate(warp):
                data, known = bytearray(), bytearray()
                for matrix in range(access.vector):
                    for word in fragment_places(index, ".trans" in access.opcode):
                        if full:
                            row, column = word
                            values, sure = rows[8 * matrix + row]
                            data += values[2 * column : 2 * column + 2]
                            known += sure[2 * column : 2 * column + 2]
                        else:
                            data, known = data + b"\0\0", known + b"\0\0"
                self._keep(access, turn, lane, bytes(data), bytes(known))

    def _stmatrix(self, access, turn, lanes, places) -> None:  # type: ignore[no-untyped-def]
        for warp, full in self._warps(lanes):
            for index, lane in enumerate(warp[: 8 * access.vector]):
                if lane not in places:
                    continue
                matrix, row = divmod(index, 8)
                data = bytearray(16)
                for source, holder in enumerate(warp):
                    value = self._program.stored_value(access, 0, matrix, holder * TURNS + turn)
                    places_of = fragment_places(source, ".trans" in access.opcode)
                    for half, (its_row, column) in enumerate(places_of):
                        if its_row == row:
                            part = value >> 16 * half & 0xFFFF
                            data[2 * column : 2 * column + 2] = part.to_bytes(2, "little")
                known = bytes([int(full)]) * 16
                self._write(access, lane, places[lane], bytes(data), known)

    def _warps(self, lanes: Sequence[int]) -> list[tuple[list[int], bool]]:
        """The lanes by warp, and whether all of the warp are there."""
        warps: dict[int, list[int]] = {}
        for lane in lanes:
            warps.setdefault(self._warp(lane), []).append(lane)
        return [(warp, len(warp) == WARP) for warp in warps.values()]

    # --- Memory --------------------------------------------------------------------------------

    def _thread(self, lane: int) -> int:
        return lane % self._inputs.threads

    def _warp(self, lane: int) -> int:
        block, thread = divmod(lane, self._inputs.threads)
        return block * MOST_THREADS + thread // WARP

    def _source(self, access: Access, turn: int, lane: int) -> bytes:
        key = lane * TURNS + turn
        values = (
            self._program.stored_value(access, 0, e, key).to_bytes(access.element_bytes, "little")
            for e in range(access.vector)
        )
        return b"".join(values)

    def _read(self, lane: int, place: tuple[str, int] | None, size: int) -> tuple[bytes, bytes]:
        """The bytes there, and which of them are known; zeros where a lane is left out."""
        if place is None:
            return bytes(size), b"\1" * size
        space = self.spaces[place[0]]
        start = space.position(lane) + place[1]
        return bytes(space.data[start : start + size]), bytes(space.known[start : start + size])

    def _write(
        self, access: Access, lane: int, place: tuple[str, int], data: bytes, known: bytes = b""
    ) -> None:
        name, address = place
        space = self.spaces[name]
        start, size = space.position(lane) + address, len(data)
        space.data[start : start + size] = data
        space.known[start : start + size] = known or b"\1" * size
        if name == "global":
            self.stored.add((address, size))
        self._note_order(access, lane, name, start, size)

    def _note_order(self, access: Access, lane: int, name: str, start: int, size: int) -> None:
        """Warps may execute the stores of one cluster in any order: then the last one is open."""
        if self._is_ordered:
            return
        now = self._warp(lane), access.number
        for position in range(start, start + size):
            writers = self._by_warp.setdefault((name, position), set())
            if any(warp != now[0] and number != now[1] for warp, number in writers):
                self._open.add((name, position))
            writers.add(now)
            if (name, position) in self._open:
                self.spaces[name].known[position] = 0

    def _keep(self, access: Access, turn: int, lane: int, data: bytes, known: bytes) -> None:
        """Store what a lane has loaded."""
        slot = (turn * ACCESSES + access.number) * MOST_THREADS + lane
        address = self._out + slot * SLOT_BYTES
        space = self.spaces["global"]
        start = space.position(lane) + address
        space.data[start : start + len(data)] = data
        space.known[start : start + len(data)] = known
        self.stored.add((address, len(data)))

    def _touched(
        self, cluster: Sequence[Access], turn: int, lanes: Sequence[int]
    ) -> Iterable[tuple[str, int]]:
        """The bytes that the stores of a cluster may have changed before a fault."""
        for access in cluster:
            executing = [lane for lane in lanes if self._guard_holds(access, lane)]
            for _, load, size, places in self.parts(access, turn, executing):
                for lane, (name, address) in places.items():
                    if not load and not self.problem(name, address, size, load):
                        start = self.spaces[name].position(lane) + address
                        yield from ((name, start + byte) for byte in range(size))
            if access.has_results:
                for lane in executing:
                    slot = (turn * ACCESSES + access.number) * MOST_THREADS + lane
                    start = self.spaces["global"].position(0) + self._out + slot * SLOT_BYTES
                    yield from (("global", start + byte) for byte in range(SLOT_BYTES))


def resolve(space: str, address: int) -> tuple[str, int]:
    """The state space of an address, and the address there."""
    if space != "generic":
        return space, address
    for name, window in WINDOWS.items():
        if name != "global" and window <= address < window + WINDOW_BYTES:
            return name, address - window
    return "global", address


def fragment_places(lane: int, transposed: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """The rows and columns of the two elements of a matrix that a lane holds (PTX, `ldmatrix`)."""
    row, pair = divmod(lane, 4)
    if transposed:
        return (2 * pair, row), (2 * pair + 1, row)
    return (row, 2 * pair), (row, 2 * pair + 1)


def signed(number: int, bits: int = 64) -> int:
    """The lowest bits of a number as a signed integer."""
    number %= 1 << bits
    return number - (1 << bits) if number >> (bits - 1) else number


def _update_of(opcode: str) -> Callable[..., int] | None:
    """What an atomic operation stores, as a function of old value, operands and bits.

    None for floating-point numbers, whose sums are left open.
    """
    words = opcode.split(".")
    name = next(w for w in words if w in _UPDATES)
    if "f" in words[-1]:
        return None
    if name in ("min", "max") and words[-1].startswith("s"):
        choose = min if name == "min" else max
        return lambda old, value, bits: choose(signed(old, bits), signed(value, bits))
    return _UPDATES[name]


_UPDATES: dict[str, Callable[..., int]] = {
    "add": lambda old, value, bits: old + value,
    "min": lambda old, value, bits: min(old, value),
    "max": lambda old, value, bits: max(old, value),
    "and": lambda old, value, bits: old & value,
    "or": lambda old, value, bits: old | value,
    "xor": lambda old, value, bits: old ^ value,
    "inc": lambda old, value, bits: 0 if old >= value else old + 1,
    "dec": lambda old, value, bits: value if old == 0 or old > value else old - 1,
    "exch": lambda old, value, bits: value,
    "cas": lambda old, expected, value, bits: value if old == expected else old,
}
