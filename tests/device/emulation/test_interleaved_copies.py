"""Copies by tensor maps with interleave, against an H200 and against NumPy."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import memlab
from memlab.device.emulation.tensor_maps import encode
from memlab.device.emulator.isa.asynchronous.tensor_copies import OFFSET_BITS, OFFSETS, SPAN_BITS
from memlab.device.emulator.machine.boxes import parts_of
from memlab.device.emulator.machine.memory import KernelFault, Segment
from memlab.kernels.launch import Buffer, TensorBox, TensorMap
from tests.support.box_runs import WORDS, load, load_pixels, run, store
from tests.support.boxes import (
    NAN,
    SHARED_BYTES,
    SOURCE,
    Box,
    Im2colBox,
    random_interleaved_box,
)
from tests.support.paths import DATA

PIECE = 16
_NOTHING = {"z": bytes(PIECE), "n": NAN * (PIECE // 2), "_": None}


def rows_of(file: str) -> list[dict[str, str]]:
    """The rows of a file of measured copies."""
    lines = (DATA / file).read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def measured(copy: str) -> list[dict[str, str]]:
    """The copies that an H200 made."""
    return [row for row in rows_of("h200-interleaved-copies.csv") if row["copy"] == copy]


def some_quick(copy: str) -> list[Any]:
    """The numbers of the copies that an H200 made; every third is tested by `make test`, too."""
    return [
        pytest.param(number, marks=[pytest.mark.slow] * (number % 3 != 0))
        for number in range(len(measured(copy)))
    ]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def box_of(row: dict[str, str]) -> Box | Im2colBox:
    if row["lower"]:
        pixels, channels = numbers(row["box"])
        return Im2colBox(
            row["dtype"],
            numbers(row["shape"]),
            (pixels, channels),
            *(numbers(row[name]) for name in ("at", "lower", "upper", "offsets", "steps")),
            int(row["swizzle"]),
            int(row["offset"]),
            int(row["interleave"]),
            "nan" if row["nan"] == "1" else "zeros",
            numbers(row["strides"]),
        )
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


def memory(row: dict[str, str]) -> tuple[Box | Im2colBox, NDArray[np.uint8], NDArray[np.uint32]]:
    """A copy with a random tensor and shared memory, in whole pieces."""
    rng, box = np.random.default_rng(1), box_of(row)
    size = -(-box.tensor_bytes // PIECE) * PIECE
    return box, rng.integers(0, 256, size, np.uint8), rng.integers(0, 2**32, WORDS, np.uint32)


@pytest.mark.parametrize("number", some_quick("load"))
def test_loads_are_those_of_an_h200(number: int) -> None:
    row = measured("load")[number]
    box, tensor, initial = memory(row)
    expected = initial.view(np.uint8).copy()
    for place, got in enumerate(pieces(row["pieces"]), box.offset // PIECE):
        piece = tensor.reshape(-1, PIECE)[got] if isinstance(got, int) else _NOTHING[got]
        if piece is not None:
            expected.reshape(-1, PIECE)[place] = np.frombuffer(bytes(piece), np.uint8)
    np.testing.assert_array_equal(box.loaded(tensor, initial.view(np.uint8)), expected)
    loaded = load_pixels if isinstance(box, Im2colBox) else load
    np.testing.assert_array_equal(loaded(box, tensor, initial), expected)


@pytest.mark.parametrize("number", some_quick("store"))
def test_stores_are_those_of_an_h200(number: int) -> None:
    row = measured("store")[number]
    box, tensor, initial = memory(row)
    expected, shared = tensor.copy(), initial.view(np.uint8).reshape(-1, PIECE)
    for place, to in enumerate(pieces(row["pieces"]), box.offset // PIECE):
        if isinstance(to, int):
            expected.reshape(-1, PIECE)[to] = shared[place]
    np.testing.assert_array_equal(box.stored(tensor, shared.reshape(-1)), expected)
    np.testing.assert_array_equal(store(box, tensor, initial), expected)


PIXELS = {
    0: Im2colBox("float16", (2, 5, 6, 8), (8, 8), (1, 1, 2, 0), (0, 0), (-1, 0), (0, 0)),
    16: Im2colBox(
        "float16", (2, 3, 5, 6), (8, 8), (1, 2, 1, 2), (0, 0), (-1, 0), (0, 0), interleave=16
    ),
}
"""Copies of pixels of 5 rows and 6 columns, by interleave."""


@pytest.mark.parametrize("interleave", PIXELS)
@pytest.mark.parametrize(
    ("point", "lower", "upper"),
    [((0, -1), (0, 0), (0, 0)), ((4, 0), (0, 0), (-1, 0)), ((-2, 0), (-1, 0), (0, 0))],
)
def test_pixels_outside_the_corners_are_a_fault(
    interleave: int, point: tuple[int, int], lower: tuple[int, ...], upper: tuple[int, ...]
) -> None:
    box = PIXELS[interleave]
    at = (0, 0, *point) if interleave else (0, *point, 0)
    box = replace(box, at=at, lower=lower, upper=upper)
    tensor, zeros = np.zeros(box.tensor_bytes, np.uint8), np.zeros(WORDS, np.uint32)
    with pytest.raises(KernelFault, match="of im2col begins outside the corners of its map"):
        load_pixels(box, tensor, zeros)


@pytest.mark.parametrize("interleave", PIXELS)
@pytest.mark.parametrize(("lower", "upper"), [((-1, 0), (0, 0)), ((0, 0), (0, 1))])
def test_stores_of_pixels_take_corners_within_the_tensor(
    interleave: int, lower: tuple[int, ...], upper: tuple[int, ...]
) -> None:
    box = replace(PIXELS[interleave], lower=lower, upper=upper)
    tensor, zeros = np.zeros(box.tensor_bytes, np.uint8), np.zeros(WORDS, np.uint32)
    with pytest.raises(KernelFault, match="a store of im2col takes a map whose corners lie in"):
        store(box, tensor, zeros)


def seen_by_observers(box: Box | Im2colBox) -> set[int]:
    """The pieces of the tensor that observers take for copied."""
    address, rank = 4096, len(box.shape)
    item = TensorMap(
        "map",
        Buffer("map", (1,), box.dtype, "in"),
        box.dtype,
        box.shape,
        tensor_box(box),
        box.strides,
    )
    held = np.frombuffer(encode(item, address), np.uint8)
    segments = {"global": Segment("global", held.copy(), len(held))}
    at, extents = box.at[::-1], box.shape[::-1]
    spans = box.extents[::-1] if isinstance(box, Box) else [1] * rank
    before = [min(max(-a, 0), span) for a, span in zip(at, spans, strict=True)]
    inside = [max(min(e - a, span), 0) for a, e, span in zip(at, extents, spans, strict=True)]
    strides = (box.unit, *box.strides[::-1])
    place = address + sum(a * stride for a, stride in zip(at, strides, strict=True))
    if isinstance(box, Box):
        words = [_packed(before, SPAN_BITS), _packed(inside, SPAN_BITS)]
    else:
        bits = OFFSET_BITS[rank]
        points = np.array([*at[1:], *[0] * (5 - rank)], np.int32).view(np.int64)
        words = [_packed(box.offsets[::-1], bits) << OFFSETS, *points.tolist()]
    lane = np.ones(1, np.bool_)
    boxes, places = np.array([[0, *words]]), np.array([place])
    (part,) = parts_of("global", boxes, places, lane, segments)
    starts = (part.rows + place - address).tolist()
    return {
        piece for start in starts for piece in range(start // PIECE, (start + part.size) // PIECE)
    }


def _packed(numbers_: Sequence[int], bits: int) -> int:
    return sum(each << bits * number for number, each in enumerate(numbers_))


def tensor_box(box: Box | Im2colBox) -> TensorBox:
    corners = (box.lower, box.upper) if isinstance(box, Im2colBox) else None
    return TensorBox(box.extents, box.steps, box.swizzle, box.interleave, corners=corners)


@pytest.mark.parametrize("copy", ["load", "store"])
def test_observers_see_what_is_copied(copy: str) -> None:
    for row in measured(copy):
        box = box_of(row)
        copied = {piece for piece in pieces(row["pieces"]) if isinstance(piece, int)}
        assert seen_by_observers(box) == copied, row


@pytest.mark.slow
def test_sectors_are_those_that_an_h200_counts() -> None:
    for row in rows_of("h200-interleaved-sectors.csv"):
        box = Box(
            "float64",
            *(numbers(row[name]) for name in ("shape", "box", "at")),
            int(row["swizzle"]),
            numbers(row["steps"]),
            interleave=int(row["interleave"]),
            pitches=numbers(row["strides"]),
        )
        behind = [0] * (5 - len(box.shape))
        point = ((*box.at[::-1], *behind), (*numbers(row["step"])[::-1], *behind), 0, box.nbytes)
        tensor = memlab.tensor_map(
            np.zeros(box.tensor_bytes // 8),
            role="in" if row["copy"] == "load" else "inout",
            **box.arguments(),
        )
        result = memlab.run(
            f"{SOURCE}:count_{row['copy']}s",
            grid=64,
            block=32,
            args=[tensor, point],
            defines=[f"RANK={len(box.shape)}"],
            shared=SHARED_BYTES,
            device="h200",
        )
        counters = result.measurement.counters
        assert (counters.bulk_requests, counters.bulk_sectors) == (64, int(row["sm"])), row


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(3))
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
