"""The order of reads before writes that shuffles and votes of a warp make.

A shuffle or vote is no barrier for memory. But where a lane gives it a value that it has read, it
has read it before the other lanes of the exchange go on. So what these write later cannot be what
it read: values do not come out of thin air (PTX ISA, "No-Thin-Air"). Writes before an exchange are
not ordered before reads behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.codegen.check_layout import THREAD_BITS, WARP_BITS
from memlab.device.emulator.codegen.stretches import has_member_mask
from memlab.device.emulator.machine.context import lanes_to_words
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.properties import WARP_SIZE


def find_exchanged_loads(steps: Sequence[DecodedInstruction]) -> Mapping[int, frozenset[int]]:
    """By exchange between the lanes of a warp, the loads whose values may go into it."""
    exchanges = [
        index
        for index, step in enumerate(steps)
        if step.row.kind == "warp" and ".sync" in step.row.opcode
    ]
    if not exchanges:
        return {}
    writers = defaultdict[str, list[int]](list)
    for index, step in enumerate(steps):
        for name in step.registers_written:
            writers[name].append(index)
    found = {}
    for exchange in exchanges:
        names, seen, loads = list(steps[exchange].registers_read), set[int](), set[int]()
        while names:
            for index in writers[names.pop()]:
                if index not in seen:
                    seen.add(index)
                    names += steps[index].registers_read
                    if steps[index].row.kind == "load":
                        loads.add(index)
        if loads:
            found[exchange] = frozenset(loads)
    return found


class LaneExchanges:
    """The last execution of each exchange into which a loaded value may go.

    Attributes:
        times: By exchange, the time of its last execution by each warp, shape (warps,).
        partners: By exchange, the lanes with which each lane executed it last, as bits, shape
            (lanes,).
    """

    def __init__(self, loads: Mapping[int, frozenset[int]], instructions: int, lanes: int) -> None:
        """Take the next blocks.

        Args:
            loads: The loads by exchange.
            instructions: The instructions of the program.
            lanes: The lanes of the blocks.
        """
        self.times = {index: np.full(lanes // WARP_SIZE, -1, np.int64) for index in loads}
        self.partners = {index: np.zeros(lanes, np.uint32) for index in loads}
        self._is_load = {index: np.zeros(instructions, np.bool_) for index in loads}
        for index, exchanged in loads.items():
            self._is_load[index][list(exchanged)] = True

    def execute(
        self, index: int, step: DecodedInstruction, operands: Operands, lanes: Lanes, time: int
    ) -> None:
        """Note that lanes, as a mask, execute an exchange after the access of a time."""
        members = np.full(len(lanes), 0xFFFF_FFFF, np.uint32)
        if has_member_mask(step):
            members[:] = operands.read(step.instruction.operands[-1], "u32")
        for mask in np.unique(members[lanes]):
            together = lanes & (members == mask)
            words = np.repeat(lanes_to_words(together) & mask, WARP_SIZE)
            self.partners[index][together] = words[together]
        self.times[index][lanes.reshape(-1, WARP_SIZE).any(axis=1)] = time

    def order(
        self, lanes: Lanes, threads: Lanes, others: Lanes, steps: Lanes, times: Lanes
    ) -> Lanes:
        """Whether reads come before whatever lanes do now.

        Args:
            lanes: The lanes, shape (n,).
            threads: Their threads.
            others: The threads that read.
            steps: The instructions by which they read.
            times: The times at which they read.
        """
        same_warp = others >> WARP_BITS == threads >> WARP_BITS
        same_warp &= others >> THREAD_BITS == threads >> THREAD_BITS
        ordered, bits = np.zeros(len(lanes), np.bool_), (others % WARP_SIZE).astype(np.uint32)
        for index, executed in self.times.items():
            takes_part = self.partners[index][lanes] >> bits & 1 != 0
            ordered |= (
                takes_part & self._is_load[index][steps] & (executed[lanes // WARP_SIZE] >= times)
            )
        return np.asarray(ordered & same_warp)
