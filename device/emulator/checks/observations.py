"""The mistakes that the tools observe: each once, with its count and its first occurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[Any]


@dataclass(frozen=True)
class Site:
    """An instruction that one thread executed.

    Attributes:
        step: The index of the instruction in the program.
        thread: The number of the block in order of execution, then the thread's in `THREAD_BITS`.
    """

    step: int
    thread: int


@dataclass(frozen=True)
class Observation:
    """One mistake, with the first thread that made it.

    Attributes:
        tool: The tool that observed it.
        kind: The kind of mistake, one of the tool's.
        space: The state space of the address; empty if there is none.
        array: The index of the array in its space; -1 if there is none.
        address: The byte address in the space.
        at: The site of the mistake.
        other: The site of the other access, or of the thread that was waited for.
        count: The number of times that a thread made it.
    """

    tool: str
    kind: str
    space: str
    array: int
    address: int
    at: Site
    other: Site | None
    count: int


class Observations:
    """Mistakes by tool, kind, line, array and line of the other access."""

    def __init__(self, lines: Sequence[int] | Lanes, starts: Mapping[str, Lanes]) -> None:
        """Collect the mistakes of a program.

        Args:
            lines: The source line of each instruction.
            starts: The start addresses of the arrays, rising, by state space.
        """
        self._lines, self._starts = np.asarray(lines), starts
        self._observed: dict[tuple[str, str, int, str, int, int], Observation] = {}

    def add(
        self,
        tool: str,
        kind: str,
        space: str,
        addresses: Lanes,
        steps: int | Lanes,
        threads: Lanes,
        other_steps: Lanes | None = None,
        other_threads: Lanes | None = None,
        array: int | None = None,
        times: int = 1,
    ) -> None:
        """Add mistakes of one kind.

        Args:
            tool: The tool that observed them.
            kind: The kind of mistake.
            space: The state space; empty if there is none.
            addresses: Byte addresses, shape (mistakes,).
            steps: The indices of the instructions.
            threads: The threads.
            other_steps: The indices of the other instructions.
            other_threads: The threads that executed the other instructions.
            array: The array that the addresses belong to; None for the last one before an address.
            times: The count of each mistake.
        """
        if not len(threads):
            return
        starts = self._starts.get(space)
        if array is not None or starts is None:
            arrays = np.full(len(threads), -1 if array is None else array)
        else:
            arrays = np.maximum(np.searchsorted(starts, addresses, "right") - 1, 0)
        steps = np.broadcast_to(steps, len(threads))
        others = np.full(len(threads), -1) if other_steps is None else self._lines[other_steps]
        lines = self._lines[steps]
        keys = np.stack([lines, arrays, others])
        order = np.lexsort((threads, *keys[::-1]))  # the first thread of each kind comes first
        differs = (np.diff(keys[:, order], axis=1) != 0).any(axis=0)
        heads = np.flatnonzero(np.concatenate([[True], differs]))
        counts = np.diff(heads, append=len(order))
        for first, count in zip(order[heads].tolist(), counts.tolist(), strict=True):
            line, array_index, other_line = keys[:, first].tolist()
            other = None
            if other_steps is not None and other_threads is not None:
                other = Site(int(other_steps[first]), int(other_threads[first]))
            observation = Observation(
                tool,
                kind,
                space,
                array_index,
                int(addresses[first]),
                Site(int(steps[first]), int(threads[first])),
                other,
                count * times,
            )
            self._keep((tool, kind, line, space, array_index, other_line), observation)

    def _keep(self, key: tuple[str, str, int, str, int, int], new: Observation) -> None:
        known = self._observed.get(key)
        if known is not None:
            first = known if known.at.thread <= new.at.thread else new
            new = replace(first, count=known.count + new.count)
        self._observed[key] = new

    def all(self) -> list[Observation]:
        """All mistakes, in the order of their first observation."""
        return list(self._observed.values())
