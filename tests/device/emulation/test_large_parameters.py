"""Structures by value up to the 32,764 bytes that CUDA 12.1 and later pass to a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab
from memlab.errors import MemlabError

SOURCE = """
struct Table {{ float v[{count}]; }};
__global__ void look(const __grid_constant__ Table t, float* y) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < {count}) y[i] = 2.0f * t.v[i];
}}
"""


def look(folder: Path, count: int, table: Any) -> Any:
    (folder / "t.cu").write_text(SOURCE.format(count=count))
    args = [table, f"out:f32[{count}]"]
    return memlab.run(f"{folder}/t.cu:look", grid=-(-count // 256), block=256, args=args)


def test_structures_of_20000_bytes_come_from_files_tuples_and_fills(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random(5000, np.float32)
    np.save(tmp_path / "t.npy", values.view(np.uint8))

    for table in (f"struct=@{tmp_path}/t.npy", tuple(values.tolist())):
        np.testing.assert_array_equal(look(tmp_path, 5000, table).outputs["y"], 2 * values)
    np.testing.assert_array_equal(look(tmp_path, 5000, "struct=ones").outputs["y"], 2)


def test_a_structure_over_the_limit_is_refused_by_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match=r"max 32764 bytes allowed"):
        look(tmp_path, 8192, "struct=ones")


def test_a_message_shows_the_beginning_of_a_long_argument(tmp_path: Path) -> None:
    with pytest.raises(MemlabError, match=r"5000 numbers, got 'struct=0,0,.*\.\.\.'") as error:
        look(tmp_path, 5000, (0,) * 4999)

    assert len(str(error.value)) < 500
