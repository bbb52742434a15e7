"""`malloc` and `free` in kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launches import launch_of
from ptx import kernel, run

from memlab.device.budget import Budget
from memlab.device.checking.check import check_launch
from memlab.device.compiler.compile import compile_launch
from memlab.device.emulation.block_parts import THREADS_VARIABLE
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.heap import ALLOCATED, FREED, OUTSIDE, Heap
from memlab.device.emulator.machine.memory import DeviceArray, KernelFault
from memlab.device.emulator.program.program import HEAP
from memlab.device.emulator.sampling.block_sample import WholeGrid
from memlab.device.measurement import DeviceSummary
from memlab.kernels.launch import Buffer, Scalar

START, SIZE = 0x7F00_0000_1000, 4096


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1500)), max_size=80))
def test_allocations_do_not_overlap_and_lie_in_the_heap(calls: list[tuple[bool, int]]) -> None:
    heap = Heap(DeviceArray("h", START, SIZE, 4))
    held: dict[int, int] = {}
    for allocates, number in calls:
        if allocates:
            address = heap.allocate(number)
            taken = [(start, start + size) for start, size in held.items()]
            if address:
                end = address + number
                assert address >= START
                assert end <= START + SIZE
                assert address % 16 == 0
                assert all(end <= a or b <= address for a, b in taken)
                held[address] = number
            else:  # there is no room of so many bytes with alignment and header
                edges = [START, *(e for a, b in sorted(taken) for e in (a, b)), START + SIZE]
                gaps = [b - a for a, b in zip(edges[::2], edges[1::2], strict=True)]
                assert number == 0 or max(gaps) < number + 3 * 16
        elif held:
            address = sorted(held)[number % len(held)]
            assert heap.free(address)
            assert not heap.free(address)
            del held[address]
    places = np.array(sorted(held), np.int64)
    assert heap.states(places, 1).tolist() == [ALLOCATED] * len(held)
    for address, size in held.items():
        assert heap.states(np.array([address]), size + 1).tolist() == [OUTSIDE]
    assert (heap.allocations, heap.allocated_bytes) == (len(held), sum(held.values()))
    for address in held:
        heap.free(address)
    assert (heap.states(places, 1) == FREED).all()
    assert heap.allocate(SIZE - 16)  # all of it is one piece again


LISTS = """extern "C" __global__ void k(unsigned long long* o, int n) {
    struct Node { Node* next; long long value; };
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Node* head = nullptr;
    long long sum = 0;
    for (int j = 0; j < n + i % 7; j++) {
        Node* node = new Node;
        if (!node) { sum = -1; break; }
        node->next = head, node->value = (long long)i * j, head = node;
    }
    o[2 * i] = (unsigned long long)head;
    for (Node* node = head; node;) {
        sum += node->value;
        Node* next = node->next;
        if (n != 3 || i % 2) delete node;
        node = next;
    }
    o[2 * i + 1] = sum;
}"""


def executed(n: int, blocks: int = 40) -> tuple[Execution, np.ndarray]:
    out = Buffer("o", (blocks * 64, 2), "uint64", "out")
    launch = launch_of(LISTS, out, Scalar("n", "int32", n), blocks=blocks)
    execution = Execution.of(launch, compile_launch(launch, (9, 0)), 0)
    execution.record(WholeGrid(launch.grid))
    return execution, execution.array(out).copy()


def test_lists_of_allocated_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses do not depend on the number of threads, nor on what ran before a reset."""
    execution, found = executed(5)

    counts = 5 + np.arange(2560) % 7
    assert found[:, 1].tolist() == [i * n * (n - 1) // 2 for i, n in enumerate(counts.tolist())]
    assert execution.memory.heap.allocations == 0
    monkeypatch.setenv(THREADS_VARIABLE, "1")
    assert (executed(5)[1] == found).all()
    execution.reset()
    execution.record(WholeGrid(execution.launch.grid))
    assert (execution.array(execution.launch.outputs[0]) == found).all()


def test_malloc_gives_null_where_the_heap_is_full() -> None:
    execution, found = executed(400)
    assert execution.memory.heap.allocated_bytes == 0
    assert 0 < np.count_nonzero(found[:, 1] == 2**64 - 1) < 2560


def test_check_notes_what_is_not_freed() -> None:
    launch = executed(3)[0].launch
    device = DeviceSummary("NVIDIA H200", "emulated", (9, 0), "h200")
    report = check_launch(launch, compile_launch(launch, (9, 0)), device, budget=Budget())
    left = sum(3 + i % 7 for i in range(0, 2560, 2))
    assert report.findings == ()
    assert report.notes == (
        f"{left:,} allocations with {16 * left:,} bytes in all that the kernel does not free: the "
        "heap keeps them for the next launches",
    )


@pytest.mark.parametrize("address", ["%a3", "%a1"])
def test_to_free_what_is_no_allocation_is_a_fault(address: str) -> None:
    """Nor may an allocation be freed twice."""
    body = f""".reg .b64 %a<4>; ld.param.u64 %a1, [n]; .param .b64 size; .param .b64 to;
    st.param.b64 [size], 48; call (to), malloc, (size); ld.param.b64 %a3, [to];
    .param .b64 a; st.param.b64 [a], %a3; call free, (a);
    .param .b64 b; st.param.b64 [b], {address}; call free, (b); ret;"""
    extern = ".extern .func (.param .b64 to) malloc (.param .b64 size);\n"
    extern += ".extern .func free (.param .b64 what);"
    with pytest.raises(
        KernelFault, match=r"invalid free: .*, by block \(0, 0, 0\) thread \(0, 0, 0\)"
    ):
        run(kernel(body, ".u64 n", functions=extern), {"n": np.zeros(4, "u8")})


def test_the_heap_has_the_size_of_a_devices() -> None:
    assert HEAP.size == 8 * 2**20
