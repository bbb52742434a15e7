"""Tensor maps in global memory, in arrays and in structures, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import memlab
from memlab.errors import UsageError

FILE = Path(__file__).parents[2] / "support" / "maps_in_memory.cu"
SHAPE = 20, 40
"""Boxes of 8 x 32 reach beyond it in both dimensions."""


def run(kernel: str, *args: Any, layers: int = 1) -> memlab.Run:
    grid = (2, 3, layers)
    return memlab.run(f"{FILE}:{kernel}", grid=grid, block=32, args=[*args], device="h200")


def map_of(values: NDArray[np.float32], **options: Any) -> Any:
    return memlab.tensor_map(values, box=(8, 32), **options)


def target() -> Any:
    return memlab.tensor_map(memlab.out(SHAPE, "f32"), box=(8, 32))


@pytest.fixture
def values() -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)


def test_maps_behind_pointers(values: NDArray[np.float32]) -> None:
    result = run("pointers", map_of(values), target(), 2)
    np.testing.assert_array_equal(result.outputs["b.0"], 2 * values)
    counters = result.measurement.counters
    # 6 boxes: a load counts all 8 rows of 4 sectors, a store those inside, as on an H200.
    assert (counters.bulk_requests, counters.bulk_sectors) == (12, 6 * 8 * 4 + 20 * (4 + 1))
    assert counters.global_load_requests == 6  # of the boxes: reading the maps counts as nothing


@pytest.mark.parametrize("as_text", [True, False])
def test_an_array_of_maps(values: NDArray[np.float32], tmp_path: Path, as_text: bool) -> None:
    other = np.roll(values, 3)
    maps: Any = [map_of(values), map_of(other), target(), memlab.tensor_map("@maps.2", box=(8, 32))]
    if as_text:
        for name, array in (("a", values), ("b", other)):
            np.save(tmp_path / f"{name}.npy", array)
        a, b = (f"f32[]:box[8,32]=@{tmp_path / name}.npy" for name in "ab")
        maps = f"tensormap[4]={a},{b},inout:f32[20,40]:box[8,32],@maps.2:box[8,32]"
    result = run("several", maps, 3, layers=2)
    np.testing.assert_array_equal(result.outputs["maps.2"], 3 * other)  # of the later blocks


@pytest.mark.parametrize("kernel", ["whole", pytest.param("listed", marks=pytest.mark.slow)])
def test_maps_in_a_structure(values: NDArray[np.float32], kernel: str) -> None:
    arguments: tuple[Any, ...] = ((map_of(values), 5, target()),)
    name = "g.target"
    if kernel == "listed":
        arguments, name = ((map_of(values), target()), 5), "maps.each[1]"
    result = run(kernel, *arguments)
    np.testing.assert_array_equal(result.outputs[name], 5 * values)


def test_what_is_no_map_is_refused_in_one_line(values: NDArray[np.float32]) -> None:
    with pytest.raises(UsageError, match=r"3 tensor maps, got .* with 2: give one for each"):
        run("several", "tensormap[3]=f32[20,40]:box[8,32],f32[20,40]:box[8,32]", 3)
    with pytest.raises(UsageError, match=r"source .CUtensorMap. takes a tensor map, got"):
        run("whole", "struct=f32[20,40],5,tensormap=f32[20,40]:box[8,32]")
    with pytest.raises(UsageError, match="no array of tensor maps"):
        run("several", "tensormap[0]=f32[20,40]:box[8,32]", 3)


def test_host_code_puts_maps_into_memory_and_structures() -> None:
    runs = {each: memlab.run(f"{FILE}:{each}", device="h200") for each in ("pointers", "whole")}
    assert not np.asarray(runs["pointers"].outputs["b.0"]).any()  # twice the zeros of a
    assert not np.asarray(runs["whole"].outputs["g.target"]).any()
    assert runs["pointers"].outputs.keys() == {"b.0"}
