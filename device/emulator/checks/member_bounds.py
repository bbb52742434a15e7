"""memcheck of array members of structures: a subscript that leaves the member it is of.

The address alone does not tell, since behind a member lies the next one. The kernel is compiled
from a source in which each such subscript passes its index on (`checking/member_arrays.py`), by an
instruction that leaves the address as it is: `bfi.b64` of no bits. Its place operand is the number
of the member. Its first operand holds the index in its low 32 bits, the elements of the member in
the next 20, and the bytes of an element in the other 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from memlab.device.emulator.checks.observations import Lanes, Site
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    bytes_moved,
)
from memlab.device.emulator.ptx.parser import Address, Immediate, Register

_ELEMENTS_SHIFT, _BYTES_SHIFT = 32, 52


@dataclass(frozen=True)
class MemberObservation:
    """An access outside the member that its subscript is of.

    Attributes:
        member: The number of the member.
        index: The index of the first one.
        elements: The elements of the member.
        space: The state space of the first one.
        at: The site of the first one.
        count: The number of times that a thread did this.
    """

    member: int
    index: int
    elements: int
    space: str
    at: Site
    count: int


@lru_cache(maxsize=32)
def find_subscripts(program: Program) -> Mapping[int, int]:
    """The instructions that pass the index of a subscript on, and the number of its member."""
    found = {}
    for index, step in enumerate(program.steps):
        if step.instruction.opcode == "bfi.b64":
            match step.instruction.operands:
                case (Register(), _, _, Immediate("int", member), Immediate("int", 0)):
                    found[index] = member
    return found


def _find_accesses(program: Program, subscripts: Iterable[int]) -> dict[int, int]:
    """The accesses whose address register a subscript alone writes, and the subscripts."""
    writers = Counter(name for step in program.steps for name in step.registers_written)
    by_register = {
        name: index
        for index in subscripts
        for name in program.steps[index].registers_written
        if writers[name] == 1
    }
    return {
        index: by_register[operand.base.name]
        for index, step in enumerate(program.steps)
        for operand in step.instruction.operands
        if isinstance(operand, Address)
        and isinstance(operand.base, Register)
        and operand.base.name in by_register
        and operand.offset >= 0
    }


class MemberBounds:
    """Follows the subscripts of a program, and the accesses at the places that they give.

    An access belongs to a subscript if the subscript alone writes its address register, and the
    access lies in the element there: then the index is that of the lane's last execution of the
    subscript. Where a pointer to an element is moved on, the access belongs to none.

    Attributes:
        subscripts: By instruction, the number of the member.
        accesses: The instruction of the subscript that an access belongs to, by instruction.
    """

    def __init__(self, program: Program) -> None:
        """Find the subscripts and accesses of a program."""
        self._program = program
        self.subscripts: Mapping[int, int] = find_subscripts(program)
        self.accesses = _find_accesses(program, self.subscripts) if self.subscripts else {}
        self._ends = {
            index: operand.offset + bytes_moved(program.steps[index].row)
            for index in self.accesses
            for operand in program.steps[index].instruction.operands
            if isinstance(operand, Address)
        }
        self._passed_on: dict[int, Lanes] = {}
        self._observed: dict[tuple[int, int], MemberObservation] = {}

    def begin(self, lanes: int) -> None:
        """Take the next blocks, of so many lanes."""
        self._passed_on = {index: np.zeros(lanes, np.uint64) for index in self.subscripts}

    def subscript(
        self, index: int, step: DecodedInstruction, operands: Operands, mask: Lanes
    ) -> None:
        """Keep what a subscript of lanes, given as a mask, passes on."""
        passed_on = operands.read(step.instruction.operands[1], "u64")
        self._passed_on[index][mask] = np.broadcast_to(passed_on, len(mask))[mask]

    def leaving(self, index: int, space: str, mask: Lanes, threads: Lanes) -> Lanes:
        """The lanes, of a mask, whose access lies outside its member; they are noted.

        Args:
            index: The instruction.
            space: The state space that it accesses.
            mask: The lanes that access it.
            threads: The thread of each lane.
        """
        subscript = self.accesses[index]
        passed_on = self._passed_on[subscript]
        positions = passed_on.astype(np.uint32).view(np.int32).astype(np.int64)
        elements = (passed_on >> _ELEMENTS_SHIFT).astype(np.int64) & 0xF_FFFF
        in_element = (passed_on >> _BYTES_SHIFT).astype(np.int64) >= self._ends[index]
        leaving = mask & in_element & ((positions < 0) | (positions >= elements))
        if leaving.any():
            first, count = int(np.flatnonzero(leaving)[0]), int(np.count_nonzero(leaving))
            member = self.subscripts[subscript]
            key = self._program.steps[index].instruction.source_line, member
            known = self._observed.get(key)
            if known is not None:
                self._observed[key] = replace(known, count=known.count + count)
            else:
                site = Site(index, int(threads[first]))
                place = int(positions[first]), int(elements[first])
                self._observed[key] = MemberObservation(member, *place, space, site, count)
        return np.asarray(leaving)

    def observations(self) -> list[MemberObservation]:
        """The mistakes, one for each line and member."""
        return list(self._observed.values())
