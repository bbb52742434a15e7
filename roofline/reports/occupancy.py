"""The occupancy of a block as a report for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Column
from rich.text import Text

from memlab.device.occupancy import (
    REGISTERS_PER_ALLOCATION,
    SUB_PARTITIONS,
    block_allocation,
    compute_occupancy,
    max_registers,
    max_warps,
)
from memlab.device.occupancy_curves import occupancy_curves, register_budget
from memlab.roofline.documents.occupancy import active_clusters
from memlab.roofline.reports.parts import (
    LABEL_COLUMNS,
    bar,
    bare_table,
    capacity,
    device_text,
    facts_section,
    heading,
    kernel_text,
    percent,
    prose_section,
    stack_sections,
)
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from memlab.device.measurement import Occupancy
    from memlab.device.occupancy import BlockAllocation, BlockRequirements
    from memlab.device.occupancy_curves import OccupancyCurve, Threshold
    from memlab.device.properties import DeviceProperties
    from memlab.roofline.documents.occupancy import OccupancySubject

RESOURCE_LABELS = {
    "threads_per_block": ("block size", "threads"),
    "registers_per_thread": ("registers", "registers per thread"),
    "shared_bytes_per_block": ("shared memory", "bytes per block"),
}
"""The label of a resource, and the unit behind its value."""


def occupancy_report(properties: DeviceProperties, subject: OccupancySubject) -> RenderableType:
    """Return the report: the block, the blocks that fit, their limits and thresholds.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: A limit of the device is unknown.
    """
    block = subject.block
    occupancy = compute_occupancy(properties, block)
    allocation = block_allocation(properties, block)
    kernel = (
        kernel_text(subject.kernel, subject.parameters)
        if subject.kernel
        else Text(subject.label, style="bold cyan")
    )
    resident = (
        f"{_blocks(occupancy.blocks_per_sm)} per SM, "
        f"{occupancy.warps_per_sm} of {_warps(max_warps(properties))}"
    )
    share = occupancy.theoretical
    sections = (
        heading((kernel, device_text(properties))),
        facts_section("Block", _block_facts(properties, subject, allocation)),
        facts_section(
            "Occupancy",
            (
                ("resident", resident),
                ("theoretical", Text.assemble((percent(share), "bold"), "  ", bar(share))),
                ("limited by", occupancy.limiter),
                *_cluster_facts(properties, subject),
            ),
        ),
        _limits_table(properties, occupancy, allocation),
        facts_section("Next threshold", _threshold_facts(occupancy_curves(properties, block))),
        prose_section("Registers", _budget_text(properties, block)),
    )
    return stack_sections(sections)


def _block_facts(
    properties: DeviceProperties, subject: OccupancySubject, allocation: BlockAllocation
) -> Iterator[tuple[str, str]]:
    block = subject.block
    yield "threads", f"{block.threads_per_block:,} = {_warps(allocation.warps_per_block)}"
    allocated = allocation.registers_per_warp // properties.warp_size
    per_block = allocation.registers_per_warp * allocation.warps_per_block
    rounded = f", {allocated} allocated" if allocated != block.registers_per_thread else ""
    chosen = "" if subject.registers_given else " (the most at this occupancy)"
    yield (
        "registers",
        f"{block.registers_per_thread} per thread{chosen}{rounded}, {per_block:,} per block",
    )
    requested, allocated = block.shared_bytes_per_block, allocation.shared_bytes_per_block
    rounded = f", {capacity(allocated)} allocated" if allocated != requested else ""
    yield "shared memory", f"{capacity(requested) if requested else 'none'}{rounded}"


def _cluster_facts(
    properties: DeviceProperties, subject: OccupancySubject
) -> Iterator[tuple[str, str]]:
    found = active_clusters(properties, subject)
    if found is None:
        return
    clusters = f"{found.active_clusters:,} {plural(found.active_clusters, 'cluster')}"
    waves = f"; the grid is {found.waves:.2f} waves" if found.waves is not None else ""
    yield (
        "clusters",
        f"{clusters} of {_blocks(found.cluster_blocks)} on the device at once, "
        f"{_blocks(found.resident_blocks)}{waves}",
    )


def _limits_table(
    properties: DeviceProperties, occupancy: Occupancy, allocation: BlockAllocation
) -> RenderableType:
    """List the blocks that each resource alone would allow, and mark the limiters."""
    reasons = {
        "blocks": f"{_blocks(occupancy.limits['blocks'])} per SM at most",
        "warps": f"{_warps(max_warps(properties))} per SM, {allocation.warps_per_block} per block",
        "registers": f"{max_registers(properties):,} per SM, "
        f"{allocation.registers_per_warp * allocation.warps_per_block:,} per block",
        "shared memory": f"{capacity(allocation.carveout_bytes)} of the L1, "
        f"{capacity(allocation.shared_bytes_per_block)} per block",
    }
    table = bare_table(
        Column(Text("Limit", style="bold"), width=LABEL_COLUMNS),
        Column(Text("blocks", style="dim"), justify="right"),
        Column(),
        Column(),
    )
    limiters = occupancy.limiter.split(" and ")
    for name, limit in occupancy.limits.items():
        mark = Text("◀ binds", style="bold yellow") if name in limiters else ""
        table.add_row(Text(f"  {name}", style="dim"), str(limit), reasons[name], mark)
    return table


def _threshold_facts(curves: Iterable[OccupancyCurve]) -> Iterator[tuple[str, str]]:
    for curve in curves:
        label, unit = RESOURCE_LABELS[curve.resource]
        blocks = curve.current_step.blocks_per_sm
        below, above = curve.thresholds
        lines = [
            _threshold_text(threshold, unit, blocks) for threshold in (below, above) if threshold
        ]
        if below is None and curve.current > curve.steps[0].first:
            lines.append("smaller values allow no more blocks")
        if above is None and curve.current < curve.steps[-1].last:
            lines.append("larger values cost no block")
        yield from zip((label, *[""] * len(lines)), lines, strict=False)


def _threshold_text(threshold: Threshold, unit: str, blocks: int) -> str:
    """Describe a threshold: `at 40 registers per thread, 2 more blocks (6): 100%`."""
    at = f"at {threshold.value:,} {unit}, "
    if threshold.occupancy is None:
        return f"{at}no block fits any more"
    there = threshold.occupancy.blocks_per_sm
    change = f"{abs(there - blocks)} {'more' if there > blocks else 'fewer'}"
    noun = plural(abs(there - blocks), "block")
    return f"{at}{change} {noun} ({there}): {percent(threshold.occupancy.theoretical)}"


def _budget_text(properties: DeviceProperties, block: BlockRequirements) -> str:
    """State the register budget, and why the textbook's division gives more."""
    budget = register_budget(properties, block)
    most, divided = budget.registers_per_thread, budget.by_division
    full = budget.warps_per_sm == max_warps(properties)
    kept = "full occupancy" if full else "the most that this block size and shared memory allow"
    text = f"Up to {most} per thread keep {budget.warps_per_sm} warps resident, {kept}."
    if divided == most:
        return text
    registers = max_registers(properties)
    unit = REGISTERS_PER_ALLOCATION // properties.warp_size
    taken = -(-divided // unit) * unit
    rounding = f", so {divided} take {taken}" if taken > divided else ""
    return (
        f"{text} Division gives {registers:,} / {budget.warps_per_sm * properties.warp_size:,} = "
        f"{divided}, but a warp gets registers in units of {REGISTERS_PER_ALLOCATION} ({unit} per "
        f"thread){rounding}, and all from one of {SUB_PARTITIONS} parts of the register file, "
        f"{registers // SUB_PARTITIONS:,} each."
    )


def _blocks(count: int) -> str:
    return f"{count} {plural(count, 'block')}"


def _warps(count: int) -> str:
    return f"{count} {plural(count, 'warp')}"
