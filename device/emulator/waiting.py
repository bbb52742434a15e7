"""Which groups only wait in a loop for what another thread will write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.control import Mask
from memlab.device.emulator.program import Program, Step, writes

_TURNS_BETWEEN_LOOKS = 8
_PATIENCE_ASLEEP, _PATIENCE = 64, 4096  # turns that are taken for waiting, with a sleep and without


class Waiting:
    """Tells when a group waits in a loop for what another thread will write.

    Such a loop asks memory again and again, by an atomic or by a load that sees what others write.
    When a turn of it leaves all its registers as they were, no further turn can differ until
    another thread writes. Where it also counts or sleeps, many turns are taken for the same.
    """

    def __init__(self, program: Program, register: Callable[[str], NDArray[Any]]) -> None:
        """Look for such loops; `register` gives the lanes of a register."""
        self._register = register
        self._loops: dict[int, tuple[str, ...]] = {}
        self._sleeps: set[int] = set()
        self._turns: dict[int, int] = {}
        self._seen: dict[int, tuple[Mask, list[NDArray[Any]]]] = {}
        for index, step in enumerate(program.steps):
            body = program.steps[step.target : index + 1] if 0 <= step.target <= index else ()
            if any(map(_asks_memory, body)):
                names = {name for each in body for name in writes(each)}
                self._loops[index] = tuple(names & program.registers.keys())
                if any(each.row.opcode.startswith("nanosleep") for each in body):
                    self._sleeps.add(index)

    def turn(self, branch: int, lanes: Mask) -> bool:
        """Lanes go back to the head of a loop: whether they only wait."""
        if branch not in self._loops:
            return False
        turns = self._turns[branch] = self._turns.get(branch, 0) + 1
        seen = self._seen.pop(branch, None)
        if seen is not None and np.array_equal(seen[0], lanes):
            now = (self._register(each)[lanes] for each in self._loops[branch])
            if all(np.array_equal(a, b) for a, b in zip(seen[1], now, strict=True)):
                return True
        if turns % _TURNS_BETWEEN_LOOKS == 0:
            held = [self._register(each)[lanes] for each in self._loops[branch]]
            self._seen[branch] = (lanes.copy(), held)
        patience = _PATIENCE_ASLEEP if branch in self._sleeps else _PATIENCE
        return turns % patience == 0


def _asks_memory(step: Step) -> bool:
    words = step.instruction.opcode.split(".")
    strong = not {"volatile", "relaxed", "acquire", "mmio"}.isdisjoint(words)
    return step.row.kind == "atomic" or (step.row.kind == "load" and strong)
