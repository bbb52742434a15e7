"""Copies by tensor maps with interleave, against an H200 and against NumPy."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import memlab
from tests.support.box_runs import WORDS, load, run, store
from tests.support.boxes import NAN, Box, random_interleaved_box
from tests.support.paths import DATA

PIECE = 16
_NOTHING = {"z": bytes(PIECE), "n": NAN * (PIECE // 2), "_": None}


def measured(copy: str) -> list[dict[str, str]]:
    """The copies of tiles that an H200 made."""
    lines = (DATA / "h200-interleaved-copies.csv").read_text().splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [row for row in rows if row["copy"] == copy and not row["lower"]]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def box_of(row: dict[str, str]) -> Box:
    return Box(
        row["dtype"],
        *(numbers(row[name]) for name in ("shape", "box", "at")),
        int(row["swizzle"]),
        numbers(row["steps"]),
        "nan" if row["nan"] == "1" else "zeros",
        int(row["offset"]),
        interleave=int(row["interleave"]),
        pitches=numbers(row["strides"]),
    )


def pieces(text: str) -> list[int | str]:
    """What each piece of shared memory got: a piece of the tensor, or `z`, `n` or `_`."""
    found: list[int | str] = []
    for token in text.split():
        if token[0] in _NOTHING:
            found += [token[0]] * int(token[1:])
        else:
            first, _, last = token.partition("-")
            found += range(int(first), int(last or first) + 1)
    return found


def memory(row: dict[str, str]) -> tuple[Box, NDArray[np.uint8], NDArray[np.uint32]]:
    """A copy with a random tensor and shared memory, in whole pieces."""
    rng, box = np.random.default_rng(1), box_of(row)
    size = -(-box.tensor_bytes // PIECE) * PIECE
    return box, rng.integers(0, 256, size, np.uint8), rng.integers(0, 2**32, WORDS, np.uint32)


@pytest.mark.parametrize("number", range(len(measured("load"))))
def test_loads_are_those_of_an_h200(number: int) -> None:
    row = measured("load")[number]
    box, tensor, initial = memory(row)
    expected = initial.view(np.uint8).copy()
    for place, got in enumerate(pieces(row["pieces"]), box.offset // PIECE):
        piece = tensor.reshape(-1, PIECE)[got] if isinstance(got, int) else _NOTHING[got]
        if piece is not None:
            expected.reshape(-1, PIECE)[place] = np.frombuffer(bytes(piece), np.uint8)
    np.testing.assert_array_equal(box.loaded(tensor, initial.view(np.uint8)), expected)
    np.testing.assert_array_equal(load(box, tensor, initial), expected)


@pytest.mark.parametrize("number", range(len(measured("store"))))
def test_stores_are_those_of_an_h200(number: int) -> None:
    row = measured("store")[number]
    box, tensor, initial = memory(row)
    expected, shared = tensor.copy(), initial.view(np.uint8).reshape(-1, PIECE)
    for place, to in enumerate(pieces(row["pieces"]), box.offset // PIECE):
        if isinstance(to, int):
            expected.reshape(-1, PIECE)[to] = shared[place]
    np.testing.assert_array_equal(box.stored(tensor, shared.reshape(-1)), expected)
    np.testing.assert_array_equal(store(box, tensor, initial), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(6))
def test_a_gpu_copies_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box = random_interleaved_box(rng)
    box = replace(box, at=tuple(max(each, 0) for each in box.at))
    tensor = rng.integers(0, 256, box.tensor_bytes, np.uint8)
    initial = rng.integers(0, 2**32, WORDS, np.uint32)
    for copy in (load, store):
        on_gpu = copy(box, tensor, initial, device="cuda:0")
        np.testing.assert_array_equal(on_gpu, copy(box, tensor, initial))


@pytest.mark.parametrize("seed", range(8))
def test_random_boxes_move_what_numpy_moves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box = random_interleaved_box(rng)
    tensor = rng.integers(0, 256, box.tensor_bytes, np.uint8)
    initial = rng.integers(0, 2**32, WORDS, np.uint32)
    expected = box.loaded(tensor, initial.view(np.uint8))
    np.testing.assert_array_equal(load(box, tensor, initial), expected)


SLICES: dict[str, Any] = {"box": (1, 1, 2, 8), "interleave": 16}
"""A box of slices."""


def test_the_last_dimension_of_the_array_is_a_slice() -> None:
    values = np.arange(2 * 3 * 4 * 12 * 8, dtype=np.uint16).reshape(2, 3, 4, 12, 8)
    box = Box("uint16", (2, 3, 4, 12), (1, 1, 2, 8), (1, 2, 1, 3), interleave=16)
    result = run(
        "load",
        box,
        memlab.tensor_map(values, **SLICES),
        box.numbers(),
        np.zeros(WORDS, np.uint32),
        memlab.out(WORDS + 1, "u32"),
    )
    got = np.asarray(result.outputs["out"]).view(np.uint16)[: box.nbytes // 2]
    np.testing.assert_array_equal(got.reshape(2, 8, 8), values[1, 2, 1:3, 3:11])
    assert memlab.tensor_map(values, **SLICES).text.startswith("tensormap=u16[2,3,4,12,8]")
