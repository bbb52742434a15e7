"""Rounds of accesses between barriers, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memlab.device.emulator.models.read_rounds import number_rounds


def program(*words: str) -> list[Any]:
    """Instructions: `load`, `barrier`, or `to N`, which branches."""
    return [
        SimpleNamespace(
            row=SimpleNamespace(
                kind=word.split()[0], opcode="bra" if word.startswith("to") else word
            ),
            target=int(word.split()[1]) if word.startswith("to") else -1,
        )
        for word in words
    ]


TILES = program("load", "load", "barrier", "load", "barrier", "to 0")
COPIES = program("load", "to 0", "barrier", "other", "to 3", "barrier", "to 0")
"""A loop of loads, and one without any, in a loop with barriers."""


@pytest.mark.parametrize(
    ("steps", "index", "run", "rounds"),
    [
        (TILES, [0, 1, 3, 0, 1, 3], [0, 0, 1, 3, 3, 4], [0, 0, 1, 2, 2, 3]),
        (COPIES, [0, 0, 0, 0], [0, 1, 8, 9], [0, 0, 1, 1]),  # twice in each trip
        (COPIES, [0, 0, 0], [0, 8, 16], [0, 1, 2]),  # once
        (program("load", "to 0"), [0, 0, 0], [0, 5, 10], [0, 0, 0]),  # it never waits
    ],
)
def test_barriers_between_accesses_begin_rounds(
    steps: list[Any], index: list[int], run: list[int], rounds: list[int]
) -> None:
    begins = np.arange(len(index)) == 0

    found = number_rounds(steps, np.array(index), np.array(run), begins)

    assert found.tolist() == rounds


def test_blocks_have_rounds_of_their_own() -> None:
    found = number_rounds(
        TILES, np.array([0, 1, 0, 1]), np.array([0, 0, 0, 0]), np.array([1, 0, 1, 0], bool)
    )

    assert found.tolist() == [0, 0, 1, 1]
