"""The L2's request coalescer, as it merges the reads of bulk copies.

The SMs of a group (GPC) that ask for a sector at about the same time get it by one read of the L2,
up to some number of them; those of different groups never do. Rings of copies run in step on an
H200 as long as the blocks only load and multiply, whether the data comes from the L2 or from DRAM:
18 SMs that read the same 1024 boxes, each at its own pace, merged 72 to 75% of their reads. Once
they store results between, about half of these (docs/results/h200-merged-copies.csv).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.models.address_streams import IntArray
from memlab.device.properties import DeviceProperties


@dataclass(frozen=True)
class CopyMerging:
    """How reads of bulk copies are merged.

    Attributes:
        group: The group of each multiprocessor, in the order in which a launch gives them blocks.
        most: Reads of one sector that become one.
        merged_apart: The share of what is merged of blocks in step that is merged of others.
        merged_later: The same of blocks of later waves, each of which starts where another ended.
    """

    group: tuple[int, ...]
    most: int
    merged_apart: float
    merged_later: float

    @classmethod
    def of(cls, properties: DeviceProperties, cluster_blocks: int = 1) -> CopyMerging | None:
        """Of a device, for a launch in clusters; None where its groups are unknown."""
        most, share = properties.l2_most_merged_copies, properties.l2_merged_apart_share
        if not properties.l2_merging_sms or most is None or share is None:
            return None
        merging = np.repeat(*_sizes(properties.l2_merging_sms))
        if cluster_blocks > 1 and properties.gpcs_by_sms:
            merging = merging[_turns(_sizes(properties.gpcs_by_sms)[1], cluster_blocks)]
        later = properties.l2_merged_later_copies_share or 0.0
        return cls(tuple(merging.tolist()), most, share, later)

    def first_reads(self, shared: IntArray, multiprocessors: int) -> float:
        """The share of the reads of a first wave that are left.

        Blocks of one slot run in step; those that share a multiprocessor delay each other, so that
        blocks of different slots are out of step.

        Args:
            shared: By the blocks in launch order: equal numbers read the same.
            multiprocessors: How many of them the device has.
        """
        slot, multiprocessor = np.divmod(np.arange(len(shared)), multiprocessors)
        group = np.resize(self.group, multiprocessors)[multiprocessor]
        in_step, met = (
            -(-np.unique(np.stack(columns), axis=1, return_counts=True)[1] // self.most)
            for columns in ((group, shared, slot), (group, shared))
        )
        left = met.sum() + (in_step.sum() - met.sum()) * (1 - self.merged_apart)
        return float(left / len(shared))

    def later_reads(self, first: float) -> float:
        """The share that is left in later waves, by that of the first one."""
        return 1 - self.merged_later * (1 - first)


def _sizes(count_by_size: Mapping[str, float]) -> tuple[IntArray, IntArray]:
    """Groups by number, the smallest first, and their sizes."""
    sizes = sorted((int(size), int(count)) for size, count in count_by_size.items())
    each = np.array([size for size, count in sizes for _ in range(count)])
    return np.arange(len(each)), each


def _turns(sizes: IntArray, cluster_blocks: int) -> IntArray:
    """The multiprocessors in the order in which they get clusters: a cluster for each GPC in turn.

    A plain launch fills one GPC after the other, which gives the multiprocessors their numbers.
    """
    first = np.cumsum(sizes) - sizes
    order = [
        range(begin + turn * cluster_blocks, begin + (turn + 1) * cluster_blocks)
        for turn in range(max(sizes) // cluster_blocks)
        for begin, size in zip(first.tolist(), sizes.tolist(), strict=True)
        if (turn + 1) * cluster_blocks <= size
    ]
    taken = [number for cluster in order for number in cluster]
    rest = sorted(set(range(int(sizes.sum()))) - set(taken))
    return np.array([*taken, *rest])
