"""The mistakes that the tools observe: each once, with its count and its first occurrence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[Any]

_Key: TypeAlias = tuple[str, str, int, str, int, int]


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
        self._observed: dict[_Key, Observation] = {}
        self._counts: Counter[_Key] = Counter()

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
        arrays = self._arrays(space, addresses) if array is None else array
        lines = self._lines[steps]
        others: int | Lanes = -1 if other_steps is None else self._lines[other_steps]
        keys = [_all_equal(each) for each in (lines, arrays, others)]
        if None in keys:
            of_each = (np.broadcast_to(each, len(threads)) for each in (lines, arrays, others))
            table = np.stack(tuple(of_each))
            order = np.lexsort((threads, *table[::-1]))  # the first thread of each kind comes first
            differs = (np.diff(table[:, order], axis=1) != 0).any(axis=0)
            heads = np.flatnonzero(np.concatenate([[True], differs]))
            firsts, counts = order[heads].tolist(), np.diff(heads, append=len(order)).tolist()
            kinds = table[:, firsts].T.tolist()
        else:
            firsts, counts, kinds = [int(np.argmin(threads))], [len(threads)], [keys]
        for first, count, (line, array_index, other_line) in zip(
            firsts, counts, kinds, strict=True
        ):
            key = tool, kind, line, space, array_index, other_line
            self._counts[key] += count * times
            thread = int(threads[first])
            known = self._observed.get(key)
            if known is not None and known.at.thread <= thread:
                continue
            other = None
            if other_steps is not None and other_threads is not None:
                other = Site(int(other_steps[first]), int(other_threads[first]))
            at = Site(steps if isinstance(steps, int) else int(steps[first]), thread)
            self._observed[key] = Observation(
                tool, kind, space, array_index, int(addresses[first]), at, other, 0
            )

    def _arrays(self, space: str, addresses: Lanes) -> int | Lanes:
        """The last array before each address; -1 where the state space has no arrays."""
        starts = self._starts.get(space)
        if starts is None:
            return -1
        return np.asarray(np.maximum(np.searchsorted(starts, addresses, "right") - 1, 0))

    def all(self) -> list[Observation]:
        """All mistakes, in the order of their first observation."""
        return [replace(each, count=self._counts[key]) for key, each in self._observed.items()]


def _all_equal(values: int | Lanes) -> int | None:
    """The value of all; None if they differ."""
    if isinstance(values, int):
        return values
    if not values.ndim:
        return int(values)
    first = values[0]
    return int(first) if (values == first).all() else None
