"""Tensor maps that a kernel edits (`tensormap.replace`), against NumPy and maps encoded so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab
from memlab.device.emulator.machine.memory import KernelFault

FILE = Path(__file__).parents[2] / "support" / "edited_maps.cu"
SHAPES = np.array([(5, 40, 160), (20, 12, 64), (3, 8, 32), (8, 32, 256)], np.int32)
"""Rows, columns and the bytes from row to row of four matrices."""


def grouped(in_shared: bool, command: Any, strides_bytes: int = 0) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(0)
    data = [rng.random((rows, pitch // 4), np.float32) for rows, _, pitch in SHAPES]
    pattern = memlab.tensor_map(rng.random((64, 64), np.float32), box=(8, 32))
    maps = [memlab.tensor_map("@pattern", box=(8, 32))] * 4
    out = memlab.inout(np.zeros((4, 8, 32), np.float32))
    shapes = SHAPES.copy()
    shapes[0, 2] = strides_bytes or shapes[0, 2]
    args = [pattern, maps, data, shapes, out, int(in_shared)]
    return command(f"{FILE}:grouped", grid=4, block=32, args=args, device="h200"), data


@pytest.mark.parametrize("in_shared", [True, False])
def test_each_block_copies_by_a_map_of_its_own(in_shared: bool) -> None:
    result, data = grouped(in_shared, memlab.run)
    rows = 8 if in_shared else 4  # in global memory it makes the box smaller, and fills in NaN
    for got, (_, columns, _), matrix in zip(result.outputs["out"], SHAPES, data, strict=True):
        expected = np.full((rows, 32), 0 if in_shared else np.nan, np.float32)
        part = matrix[:rows, : min(columns, 32)]
        expected[: part.shape[0], : part.shape[1]] = part
        np.testing.assert_array_equal(got[:rows], expected)
    assert result.measurement.counters.bulk_sectors == 4 * rows * 4


def test_a_stride_that_is_no_multiple_of_16_bytes_is_a_fault() -> None:
    with pytest.raises(KernelFault, match="or has strides, that are no multiples of 16 bytes"):
        grouped(True, memlab.run, strides_bytes=164)


@pytest.mark.parametrize("in_shared", [True, False])
def test_a_map_that_threads_wrote_and_fenced_is_no_mistake(in_shared: bool) -> None:
    assert grouped(in_shared, memlab.check)[0].findings == ()


@pytest.mark.parametrize("from_zeros", [False, True])
@pytest.mark.parametrize("interleave", [0, pytest.param(16, marks=pytest.mark.slow)])
def test_all_fields_make_the_map_that_is_encoded_so(from_zeros: bool, interleave: int) -> None:
    values = np.zeros((64, 64), np.float32)
    edited = memlab.tensor_map(values, box=(4, 16), swizzle=128, fill="nan", conversion="tf32")
    wanted = "tensormap=bf16[4,40,64]:box[2,8,32]:step[1,2,1]:swizzle64"
    if interleave:
        wanted = wanted.replace("64]", "64,8]", 1) + ":strides[5120,128]:interleave16"
    out = memlab.inout(np.zeros((2, 16), np.uint64))
    args = [edited, wanted, out, int(from_zeros)]
    launch: dict[str, Any] = {"grid": 1, "block": 1, "args": args, "device": "h200"}
    result = memlab.run(f"{FILE}:all_fields", defines={"INTERLEAVE": interleave}, **launch)
    got, encoded = np.asarray(result.outputs["out"])
    np.testing.assert_array_equal(got, encoded)
