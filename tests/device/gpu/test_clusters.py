"""Thread block clusters on a GPU: launches with the cluster attribute."""

from typing import Any

import numpy as np
import pytest

import memlab
from tests.device.emulation import test_cluster_copies as copies
from tests.device.emulation import test_clusters as emulated

pytestmark = pytest.mark.gpu

GPU: dict[str, Any] = {"device": 0, "samples": 2}


@pytest.mark.parametrize(
    ("grid", "cluster"), [((8,), (2,)), ((4, 4), (2, 2)), ((2, 6, 4), (1, 3, 4)), ((32,), (16,))]
)
def test_blocks_read_the_shared_memory_of_the_next_rank(
    grid: tuple[int, ...], cluster: tuple[int, ...]
) -> None:
    x = np.random.default_rng(1).random(64 * int(np.prod(grid)), np.float32)
    out = memlab.out(len(x), np.float32)
    run = emulated.launch("next_block", grid, 64, [x, out], cluster=cluster, **GPU)
    np.testing.assert_array_equal(run.outputs["out"], emulated.next_blocks(x, grid, cluster))
    assert run.measurement.time.provenance == "measured"
    assert run.measurement.counters.distributed_shared_sectors == 8 * np.prod(grid)


def test_atomics_spread_bins_over_the_cluster_that_the_kernel_declares() -> None:
    values = np.random.default_rng(2).integers(0, 256, 20_000, np.int32)
    counts = memlab.inout(np.zeros(256, np.int32))
    run = emulated.launch("histogram", 8, 128, [values, counts, len(values)], shared=256, **GPU)
    np.testing.assert_array_equal(run.outputs["out"], np.bincount(values, minlength=256))


@pytest.mark.parametrize("cluster", [None, (2, 1, 3)])
def test_the_registers_of_clusters_are_those_of_the_emulator(
    cluster: tuple[int, int, int] | None,
) -> None:
    grid = (4, 2, 6)
    tables = [
        emulated.launch(
            "registers", grid, 1, [memlab.out(19 * 48, np.uint32)], cluster=cluster, **more
        ).outputs["out"]
        for more in (GPU, {})
    ]
    np.testing.assert_array_equal(*tables)


@pytest.mark.parametrize(
    ("entry", "more"),
    [
        ("store", ()),
        ("store_wide", ()),
        ("reduce", ()),
        ("copy", ()),
        ("multicast", (0b1010,)),
        ("arrive", ()),
    ],
)
def test_asynchronous_copies_between_blocks(entry: str, more: tuple[int, ...]) -> None:
    _, measured = copies.launch(entry, *more, **GPU)
    _, counted = copies.launch(entry, *more)
    np.testing.assert_array_equal(measured.outputs["out"], counted.outputs["out"])


def test_blocks_of_a_cluster_are_at_different_barriers() -> None:
    x = np.random.default_rng(3).integers(0, 100, 8 * 128, np.int32)
    outputs = [
        emulated.launch("stages", 8, 128, [x, memlab.out(len(x), np.int32)], cluster=2, **more)
        for more in (GPU, {})
    ]
    np.testing.assert_array_equal(*(run.outputs["out"] for run in outputs))
