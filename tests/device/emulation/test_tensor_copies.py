"""Tensor copies (`cp.async.bulk.tensor`) against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import memlab
from memlab.device.emulator.machine.memory import KernelFault
from tests.support.boxes import SHARED_BYTES, SOURCE, Box, random_box

WORDS = SHARED_BYTES // 4


def element_type(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def run(kernel: str, box: Box, *arguments: Any, defines: tuple[str, ...] = ()) -> memlab.Run:
    """Execute a kernel of `boxes.cu` on the emulated device."""
    return memlab.run(
        f"{SOURCE}:{kernel}",
        grid=1,
        block=32,
        args=[*arguments, WORDS],
        defines=[f"RANK={len(box.shape)}", *defines],
        shared=SHARED_BYTES,
        device="h200",
    )


def load(box: Box, tensor: NDArray[np.uint8], initial: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Shared memory after a load."""
    item = memlab.tensor_map(tensor.view(element_type(box.dtype)), **box.arguments())
    result = run("load", box, item, box.numbers(), initial, memlab.out(WORDS + 1, "u32"))
    out = np.asarray(result.outputs["out"])
    assert out[WORDS] == 1  # all bytes of the box are complete, also of what lies outside
    return out[:WORDS].view(np.uint8)


def store(
    box: Box, tensor: NDArray[np.uint8], initial: NDArray[np.uint32], operation: str = ""
) -> NDArray[np.uint8]:
    """The tensor after a store, or a reduction."""
    values = tensor.view(element_type(box.dtype))
    item = memlab.tensor_map(values, role="inout", **box.arguments())
    defines = (f'REDUCE="{operation}"',) if operation else ()
    result = run("store", box, item, box.numbers(), initial, defines=defines)
    return np.asarray(result.outputs["map"]).view(np.uint8)


@pytest.mark.parametrize("seed", range(12))
def test_random_boxes_move_what_numpy_moves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box = random_box(rng)
    tensor = rng.integers(0, 256, box.tensor_bytes, np.uint8)
    initial = rng.integers(0, 2**32, WORDS, np.uint32)
    shared = initial.view(np.uint8)
    np.testing.assert_array_equal(load(box, tensor, initial), box.loaded(tensor, shared))
    np.testing.assert_array_equal(store(box, tensor, initial), box.stored(tensor, shared))


@pytest.mark.parametrize(
    ("operation", "dtype", "combine"),
    [
        ("add", "float32", np.add),
        ("add", "bfloat16", np.add),
        ("min", "int32", np.minimum),
        ("max", "float16", np.maximum),
        ("xor", "uint32", np.bitwise_xor),
        ("or", "uint64", np.bitwise_or),
    ],
)
def test_reductions_combine_what_lies_in_the_tensor(
    operation: str, dtype: str, combine: np.ufunc
) -> None:
    rng = np.random.default_rng(3)
    kind = element_type(dtype)
    box = Box(dtype, (5, 32), (4, 64 // kind.itemsize), (2, 16), 128)
    tensor = rng.integers(-99, 99, (5, 32)).astype(kind)
    initial = rng.integers(-99, 99, 4 * WORDS // kind.itemsize).astype(kind)
    left = store(box, tensor.view(np.uint8).reshape(-1), initial.view(np.uint32), operation)
    expected = tensor.copy()
    moved = box.stored(np.zeros(tensor.nbytes, np.uint8), initial.view(np.uint8))
    rows, columns = slice(2, 5), slice(16, min(16 + box.extents[1], 32))
    part = moved.view(kind).reshape(5, 32)[rows, columns]
    expected[rows, columns] = combine(expected[rows, columns], part)
    np.testing.assert_array_equal(left.view(kind).reshape(5, 32), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": 64}, "a box in shared memory begins at a multiple of 128 bytes"),
        ({"offset": SHARED_BYTES - 128}, "illegal address: write of 16 bytes at shared offset"),
    ],
)
def test_a_stray_copy_is_a_fault_of_one_line(change: dict[str, Any], message: str) -> None:
    box = Box("float32", (64, 32), (8, 32), (0, 0), **change)
    with pytest.raises(KernelFault, match=message) as raised:
        load(box, np.zeros(box.tensor_bytes, np.uint8), np.zeros(WORDS, np.uint32))
    assert "\n" not in str(raised.value)


def test_a_map_of_another_rank_is_a_fault() -> None:
    item = memlab.tensor_map(np.zeros((4, 8, 16), np.float32), box=(1, 8, 16))
    box = Box("float32", (8, 16), (8, 16), (0, 0))
    zeros = np.zeros(WORDS, np.uint32)
    with pytest.raises(KernelFault, match="another number of dimensions"):
        run("load", box, item, box.numbers(), zeros, memlab.out(WORDS + 1, "u32"))


def test_a_copy_from_within_a_piece_is_a_fault() -> None:
    box = Box("float32", (8, 32), (4, 16), (0, 2))
    tensor, zeros = np.zeros(box.tensor_bytes, np.uint8), np.zeros(WORDS, np.uint32)
    with pytest.raises(KernelFault, match="a box begins at a multiple of 16 bytes in a row"):
        load(box, tensor, zeros)


def test_a_reduction_of_another_type_is_a_fault() -> None:
    box = Box("int64", (8, 32), (4, 16), (0, 0))
    tensor, zeros = np.zeros(box.tensor_bytes, np.uint8), np.zeros(WORDS, np.uint32)
    with pytest.raises(KernelFault, match="this reduction does not take the element type"):
        store(box, tensor, zeros, "add")
