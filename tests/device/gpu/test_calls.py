"""Recursion, virtual functions and the heap on a GPU, beside the emulated device."""

from typing import Any

import numpy as np
import pytest
from paths import DATA

import memlab

pytestmark = pytest.mark.gpu

CALLS = DATA / "third_party" / "calls.cu"
BLOCKS, THREADS = 8, 64
NUMBERS = np.random.default_rng(1)


@pytest.mark.parametrize(("entry", "most"), [("fib", 12), ("parity", 15), ("frames", 999)])
def test_recursive_functions(entry: str, most: int) -> None:
    assert_same(entry, NUMBERS.integers(0, most, BLOCKS * THREADS, np.int32))


def test_functions_of_a_table_in_constant_memory() -> None:
    assert_same("table", NUMBERS.integers(0, 999, BLOCKS * THREADS, np.int32))


def test_virtual_functions_that_call_others() -> None:
    x = NUMBERS.random(BLOCKS * THREADS, np.float32)
    kinds = NUMBERS.integers(0, 4, len(x), np.int32)
    ours, theirs = (
        launch("tree", [x, kinds, memlab.out(len(x), np.float32), len(x)], device)
        for device in DEVICES
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


DEVICES = ("h200", 0)


def launch(entry: str, args: list[Any], device: str | int) -> Any:
    where = f"{CALLS}:{entry}"
    run = memlab.run(where, grid=BLOCKS, block=THREADS, args=args, device=device)
    return run.outputs["out"]


def assert_same(entry: str, numbers: np.ndarray) -> None:
    ours, theirs = (
        launch(entry, [numbers, memlab.out(len(numbers), np.int32)], device) for device in DEVICES
    )
    np.testing.assert_array_equal(ours, theirs)


def test_lists_of_allocated_nodes(tmp_path: Any) -> None:
    source = """extern "C" __global__ void lists(int* out) {
        struct Node { Node* next; int value; };
        int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
        Node* head = nullptr;
        for (int k = 0; k < i % 7; k++) {
            Node* node = new Node;
            node->next = head, node->value = i * k, head = node;
        }
        while (head) { sum += head->value; Node* next = head->next; delete head; head = next; }
        out[i] = sum;
    }"""
    (tmp_path / "lists.cu").write_text(source)
    expected = [sum(i * k for k in range(i % 7)) for i in range(BLOCKS * THREADS)]
    for device in DEVICES:
        run = memlab.run(
            f"{tmp_path / 'lists.cu'}:lists",
            grid=BLOCKS,
            block=THREADS,
            args=[memlab.out(BLOCKS * THREADS, np.int32)],
            device=device,
        )
        assert run.outputs["out"].tolist() == expected
