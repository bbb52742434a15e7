"""A block's occupancy as a person reads it in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Column
from rich.text import Text

from memlab.device.occupancy import (
    BLOCK_RESOURCES,
    REGISTERS_PER_ALLOCATION,
    SUB_PARTITIONS,
    BlockAllocation,
    BlockRequirements,
    block_allocation,
    compute_occupancy,
    max_registers,
    max_warps,
    resource_limits,
)
from memlab.device.occupancy_thresholds import occupancy_thresholds as thresholds
from memlab.device.occupancy_thresholds import register_budget
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from memlab.device.measurement import Occupancy
    from memlab.device.occupancy_thresholds import Threshold
    from memlab.device.properties import DeviceProperties
    from memlab.roofline.documents.occupancy import OccupancySubject

RESOURCE_LABELS = {
    "threads_per_block": ("block size", "threads"),
    "registers_per_thread": ("registers", "registers a thread"),
    "shared_bytes_per_block": ("shared memory", "bytes a block"),
}
"""A resource as a label, and the unit that follows its value."""


def occupancy_report(properties: DeviceProperties, subject: OccupancySubject) -> RenderableType:
    """Give the whole report: the block, the blocks that fit, what binds, what would change it.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    block = subject.block
    found, given = compute_occupancy(properties, block), block_allocation(properties, block)
    sections = (
        _heading(properties, subject),
        facts_section("Block", _block_facts(properties, subject, given)),
        facts_section("Occupancy", _occupancy_facts(properties, found)),
        _limits(properties, found, given),
        facts_section("Next threshold", _threshold_facts(properties, subject.block, found)),
        prose_section("Registers", budget_text(properties, subject.block)),
    )
    return stack_sections(sections)


def threshold_text(resource: str, threshold: Threshold, found: Occupancy) -> str:
    """Say what a threshold gives: `at 40 registers a thread, 2 more blocks (6): 100%`."""
    at = f"at {threshold.value:,} {RESOURCE_LABELS[resource][1]}, "
    if threshold.occupancy is None:
        return at + "no block fits any more"
    blocks = threshold.occupancy.blocks_per_sm
    change = blocks - found.blocks_per_sm
    return (
        f"{at}{_blocks(abs(change), 'more' if change > 0 else 'fewer')} ({blocks}): "
        f"{percent(threshold.occupancy.theoretical)}"
    )


def budget_text(properties: DeviceProperties, block: BlockRequirements) -> str:
    """Say how many registers a thread may have, and why division promises more."""
    budget = register_budget(properties, block)
    most, divided = budget.registers_per_thread, budget.by_division
    full = budget.warps_per_sm == max_warps(properties)
    kept = "full occupancy" if full else "the most that this block size and shared memory allow"
    text = f"Up to {most} a thread keep {budget.warps_per_sm} warps resident, {kept}."
    if divided == most:
        return text
    file = max_registers(properties)
    unit = REGISTERS_PER_ALLOCATION // properties.warp_size
    taken = -(-divided // unit) * unit
    rounding = f", so {divided} take {taken}" if taken > divided else ""
    return (
        f"{text} Division promises {file:,} / {budget.warps_per_sm * properties.warp_size:,} = "
        f"{divided}, but a warp gets registers in units of {REGISTERS_PER_ALLOCATION} ({unit} a "
        f"thread){rounding}, and all from one of {SUB_PARTITIONS} parts of the register file, "
        f"{file // SUB_PARTITIONS:,} each."
    )


def _heading(properties: DeviceProperties, subject: OccupancySubject) -> RenderableType:
    name = (
        kernel_text(subject.kernel, subject.parameters)
        if subject.kernel
        else Text(subject.label, style="bold cyan")
    )
    return heading((name, device_text(properties)))


def _block_facts(
    properties: DeviceProperties, subject: OccupancySubject, given: BlockAllocation
) -> Iterator[tuple[str, str]]:
    block = subject.block
    yield "threads", f"{block.threads_per_block:,} = {_warps(given.warps_per_block)}"
    allocated = given.registers_per_warp // properties.warp_size
    total = given.registers_per_warp * given.warps_per_block
    rounded = f", {allocated} allocated" if allocated != block.registers_per_thread else ""
    chosen = "" if subject.registers_given else " (the most that cost no block)"
    yield (
        "registers",
        f"{block.registers_per_thread} a thread{chosen}{rounded}, {total:,} a block",
    )
    asked = block.shared_bytes_per_block
    reserved = given.shared_bytes_per_block - asked
    more = f", {capacity(given.shared_bytes_per_block)} allocated" if reserved else ""
    yield "shared memory", f"{capacity(asked) if asked else 'none'}{more}"


def _occupancy_facts(
    properties: DeviceProperties, found: Occupancy
) -> Iterator[tuple[str, RenderableType]]:
    yield (
        "resident",
        f"{_blocks(found.blocks_per_sm)} an SM, "
        f"{found.warps_per_sm} of {_warps(max_warps(properties))}",
    )
    share = Text.assemble((percent(found.theoretical), "bold"), "  ", bar(found.theoretical))
    yield "theoretical", share
    yield "limited by", found.limiter


def _limits(
    properties: DeviceProperties, found: Occupancy, given: BlockAllocation
) -> RenderableType:
    """List what each resource alone would allow, the binding ones marked."""
    why = {
        "blocks": f"{_blocks(found.limits['blocks'])} an SM, however small",
        "warps": f"{_warps(max_warps(properties))} an SM, {given.warps_per_block} a block",
        "registers": f"{max_registers(properties):,} an SM, "
        f"{given.registers_per_warp * given.warps_per_block:,} a block",
        "shared memory": f"{capacity(given.carveout_bytes)} carved out of the L1, "
        f"{capacity(given.shared_bytes_per_block)} a block",
    }
    table = bare_table(
        Column(Text("Limit", style="bold"), width=LABEL_COLUMNS),
        Column(Text("blocks", style="dim"), justify="right"),
        Column(),
        Column(),
    )
    binding = found.limiter.split(" and ")
    for name, limit in found.limits.items():
        mark = Text("◀ binds", style="bold yellow") if name in binding else ""
        table.add_row(Text(f"  {name}", style="dim"), str(limit), why[name], mark)
    return table


def _threshold_facts(
    properties: DeviceProperties, block: BlockRequirements, found: Occupancy
) -> Iterator[tuple[str, str]]:
    for resource in BLOCK_RESOURCES:
        label = RESOURCE_LABELS[resource][0]
        below, above = thresholds(properties, block, resource)
        for threshold in (below, above):
            if threshold:
                yield label, threshold_text(resource, threshold, found)
                label = ""
        least, most = resource_limits(properties)[resource]
        value = getattr(block, resource)
        if below is None and value > least:
            yield label, "smaller values allow no more blocks"
            label = ""
        if above is None and value < most:
            yield label, "larger values cost no block"


def _blocks(count: int, which: str = "") -> str:
    words = f"{which} block" if which else "block"
    return f"{count} {words}{'' if count == 1 else 's'}"


def _warps(count: int) -> str:
    return f"{count} warp{'' if count == 1 else 's'}"
