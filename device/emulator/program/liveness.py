"""Which registers may still be read: a backward data-flow analysis."""

from __future__ import annotations

from collections.abc import Sequence


def live_registers(
    read: Sequence[frozenset[str]],
    written: Sequence[frozenset[str]],
    following: Sequence[Sequence[int]],
    kept: frozenset[str] = frozenset(),
) -> list[frozenset[str]]:
    """The registers that may be read after each piece of a program.

    Args:
        read: The registers that each piece reads before it has written them.
        written: Those that it writes in any case.
        following: The pieces that may run behind it.
        kept: Registers that are always needed.
    """
    before: list[frozenset[str]] = list(read)
    after: list[frozenset[str]] = [kept] * len(read)
    changed = True
    while changed:
        changed = False
        for number in range(len(read) - 1, -1, -1):
            out = kept.union(*(before[piece] for piece in following[number]))
            if out != after[number]:
                after[number] = out
                before[number] = read[number] | (out - written[number])
                changed = True
    return after
