"""What the tools have seen, each mistake once, with how often and where it came first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[Any]

THREAD_BITS = 10
"""A block has at most 1024 threads, so a thread's number is its block's, then ten bits."""


@dataclass(frozen=True)
class Site:
    """An instruction as one thread carried it out.

    Attributes:
        step: Its place in the program.
        thread: The running number of the thread's block, then its own in `THREAD_BITS`.
    """

    step: int
    thread: int


@dataclass(frozen=True)
class Observation:
    """One mistake, as its first thread made it.

    Attributes:
        tool: Which tool saw it.
        kind: One of the tool's kinds.
        space: State space of the address; empty where there is none.
        array: Which of the space's arrays, by their order in it; -1 where there is none.
        address: Byte address in that space.
        at: Where it happened.
        other: The other access, or the thread that was waited for.
        count: How many threads made it, each as often as it did.
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
    """Mistakes by tool, kind, line, array and the other access's line."""

    def __init__(self, lines: Sequence[int], starts: Mapping[str, Lanes]) -> None:
        """Collect for a program.

        Args:
            lines: The source line of each of its instructions.
            starts: By state space, where its arrays start, in rising order.
        """
        self._lines, self._starts = np.asarray(lines), starts
        self._found: dict[tuple[str, str, int, str, int, int], Observation] = {}

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
        """Take note of mistakes of one kind.

        Args:
            tool: Which tool saw them.
            kind: One of its kinds.
            space: The state space; empty where there is none.
            addresses: Byte address of each, shape (mistakes,).
            steps: The instruction of each, as its place in the program.
            threads: The thread of each.
            other_steps: The other instruction of each.
            other_threads: The thread that carried it out.
            array: The array that was meant; None takes the last one before the address.
            times: How many mistakes each stands for.
        """
        starts = self._starts.get(space)
        if array is not None or starts is None:
            arrays = np.full(len(threads), -1 if array is None else array)
        else:
            arrays = np.maximum(np.searchsorted(starts, addresses, "right") - 1, 0)
        steps = np.broadcast_to(steps, len(threads))
        others = np.full(len(threads), -1) if other_steps is None else self._lines[other_steps]
        keys, of = np.unique([self._lines[steps], arrays, others], axis=1, return_inverse=True)
        for number, (line, which, other_line) in enumerate(keys.T.tolist()):
            chosen = np.flatnonzero(of.reshape(-1) == number)
            first = int(chosen[np.argmin(threads[chosen])])
            other = None
            if other_steps is not None and other_threads is not None:
                other = Site(int(other_steps[first]), int(other_threads[first]))
            seen = Observation(
                tool,
                kind,
                space,
                which,
                int(addresses[first]),
                Site(int(steps[first]), int(threads[first])),
                other,
                len(chosen) * times,
            )
            self._keep((tool, kind, line, space, which, other_line), seen)

    def _keep(self, key: tuple[str, str, int, str, int, int], seen: Observation) -> None:
        known = self._found.get(key)
        if known is not None:
            earlier = known if known.at.thread <= seen.at.thread else seen
            seen = replace(earlier, count=known.count + seen.count)
        self._found[key] = seen

    def all(self) -> list[Observation]:
        """Everything seen, in the order in which it was."""
        return list(self._found.values())
