"""Groups of multiprocessors (GPCs): those on which blocks of one cluster run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from memlab.device.gpu.calibration.records import RawSample
from memlab.device.gpu.driver import translated_errors
from memlab.device.gpu.peaks.bench import BenchmarkSession
from memlab.errors import MemlabError

FIRST_WITH_CLUSTERS = (9, 0)
"""The compute capability."""
SIZES = (16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2)
"""Blocks of a cluster: with several sizes every two multiprocessors of a group meet, if through
others."""
ROUNDS, WAVES = 6, 3
STAY_CLOCKS, THREADS = 50_000, 32
DEFAULT_SHARED_BYTES = 48 * 1024
WORD_BYTES = 4


def measure_groups(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Find the groups of multiprocessors in which clusters lie, where a GPU has clusters.

    Each block takes all shared memory of a multiprocessor. A size of which the GPU holds no
    cluster is left out. The samples are the lowest number in the group of each multiprocessor.
    """
    session, properties = bench.session, bench.properties
    bench.step("groups of multiprocessors")
    if properties.compute_capability < FIRST_WITH_CLUSTERS:
        return
    shared = properties.max_shared_memory_per_block_optin_bytes or DEFAULT_SHARED_BYTES
    together = list[Sequence[int]]()
    out = session.array(WAVES * session.multiprocessors * WORD_BYTES)
    for size in SIZES:
        blocks = WAVES * session.multiprocessors // size * size
        try:
            with translated_errors(f"clusters of {size} blocks"):
                function = bench.load("clusters.cu", "places", cluster=(size, 1, 1))
                arguments = [np.uint64(int(out)).tobytes(), np.uint32(STAY_CLOCKS).tobytes()]
                for _ in range(ROUNDS):
                    session.launch(function, (blocks, 1, 1), (THREADS, 1, 1), arguments, shared)
                    places = session.read(out, np.empty(blocks, np.uint32))
                    together += places.reshape(-1, size).tolist()
        except MemlabError:
            continue
    for number, first in joined(together).items():
        yield RawSample("first_of_group", str(number), float(first))


def joined(groups: Iterable[Sequence[int]]) -> dict[int, int]:
    """Join groups that share a member.

    Args:
        groups: Members of each.

    Returns:
        The lowest member that each member is joined with.
    """
    parent = dict[int, int]()

    def first(member: int) -> int:
        while parent.setdefault(member, member) != member:
            member = parent[member]
        return member

    for group in groups:
        firsts = {first(member) for member in group}
        for root in firsts:
            parent[root] = min(firsts)
    return {member: first(member) for member in sorted(parent)}
