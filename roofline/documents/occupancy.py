"""The occupancy of a block as data: its subject, the JSON document, and the curves as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memlab.device.occupancy import (
    BlockRequirements,
    block_allocation,
    compute_occupancy,
)
from memlab.device.occupancy_curves import occupancy_curves, register_budget
from memlab.roofline.documents.codec import encode
from memlab.roofline.units import parameters_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab.device.occupancy_curves import OccupancyCurve
    from memlab.device.properties import DeviceProperties

SCHEMA_VERSION = 1

CURVE_COLUMNS = (
    "resource",
    "first",
    "last",
    "current",
    "blocks_per_sm",
    "warps_per_sm",
    "occupancy",
    "limiter",
)


@dataclass(frozen=True)
class OccupancySubject:
    """The block whose occupancy is computed.

    Attributes:
        block: The block's threads, registers per thread and shared memory in bytes.
        kernel: The name of the compiled kernel; empty where the user gave numbers alone.
        parameters: The kernel's parameters; empty without a kernel.
        registers_given: Whether the registers are known; else they are the most that cost no
            block.
        cluster_blocks: Blocks of a cluster; 1 where blocks form none.
        grid_blocks: Blocks of the grid; 0 without a kernel.
    """

    block: BlockRequirements
    kernel: str = ""
    parameters: dict[str, int | str] = field(default_factory=dict)
    registers_given: bool = True
    cluster_blocks: int = 1
    grid_blocks: int = 0

    @property
    def label(self) -> str:
        """The subject in a few words, for a title."""
        if self.kernel:
            return f"{self.kernel}, {parameters_text(self.parameters)}"
        return f"{self.block.threads_per_block} threads per block"


@dataclass(frozen=True)
class ActiveClusters:
    """The clusters that a device holds at once.

    Attributes:
        cluster_blocks: Blocks of a cluster.
        active_clusters: Clusters at once, as `cudaOccupancyMaxActiveClusters` counts them.
        resident_blocks: Their blocks.
        waves: How often these would have to be replaced for the whole grid; None where no cluster
            fits.
    """

    cluster_blocks: int
    active_clusters: int
    resident_blocks: int
    waves: float | None


def active_clusters(
    properties: DeviceProperties, subject: OccupancySubject
) -> ActiveClusters | None:
    """The clusters of a subject that a device holds at once.

    Returns:
        Their number; None where blocks form no clusters, or the device's number of
        multiprocessors is not known.
    """
    occupancy = compute_occupancy(properties, subject.block, subject.cluster_blocks)
    if occupancy.active_clusters is None:
        return None
    blocks = occupancy.active_clusters * subject.cluster_blocks
    return ActiveClusters(
        subject.cluster_blocks,
        occupancy.active_clusters,
        blocks,
        subject.grid_blocks / blocks if blocks else None,
    )


def occupancy_document(properties: DeviceProperties, subject: OccupancySubject) -> dict[str, Any]:
    """Return the occupancy of a block as a JSON document.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: A limit of the device is unknown.
    """
    block = subject.block
    document: dict[str, Any] = encode(
        {
            "schema_version": SCHEMA_VERSION,
            "device": {
                "name": properties.name,
                "compute_capability": properties.compute_capability,
            },
            "kernel": subject.kernel or None,
            "parameters": subject.parameters,
            "block": block,
            "allocation": block_allocation(properties, block),
            "occupancy": compute_occupancy(properties, block, subject.cluster_blocks),
            "clusters": active_clusters(properties, subject),
            "thresholds": {
                curve.resource: dict(zip(("below", "above"), curve.thresholds, strict=True))
                for curve in occupancy_curves(properties, block)
            },
            "register_budget": register_budget(properties, block),
        }
    )
    return document


def curves_csv(curves: Iterable[OccupancyCurve]) -> str:
    """Write curves as CSV, a row per step: enough to draw them again."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CURVE_COLUMNS)
    for curve in curves:
        for step in curve.steps:
            current = curve.current if step == curve.current_step else ""
            occupancy = step.occupancy
            share = occupancy.theoretical if occupancy else 0.0
            limiter = occupancy.limiter if occupancy else "does not fit"
            counts = (step.blocks_per_sm, step.warps_per_sm, share, limiter)
            writer.writerow((curve.resource, step.first, step.last, current, *counts))
    return text.getvalue()
