"""The listing of machine code in a terminal: basic blocks, with the PTX and the source beside."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from memlab.roofline.reports.parts import device_text, heading, kernel_text
from memlab.roofline.units import si_text
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from memlab.device.machine_code.listing import ListedInstruction, MachineListing

SASS_COLUMNS = 130
"""Columns that a listing uses of a wide terminal."""

_PIPES_SHOWN = 6


def sass_report(listing: MachineListing) -> RenderableType:
    """Lay out a listing: a heading, the sums, and the instructions by basic block."""
    counters = listing.counters
    shares = ", ".join(
        f"{pipe} {100 * count / max(counters.warp_instructions, 1):.0f}%"
        for pipe, count in list(counters.by_pipe.items())[:_PIPES_SHOWN]
    )
    sums = f"{si_text(counters.warp_instructions, '')} warp instructions: {shares}"
    notes = [Text(sums)]
    if not listing.has_control:
        version = ".".join(map(str, listing.device.compute_capability))
        notes.append(
            Text(f"The control bits of compute capability {version} are not published: no stalls.")
        )
    notes.append(
        Text(
            "Executions by warps of the whole grid, and the stall (st): clocks until the warp may "
            "issue its next instruction.",
            style="dim",
        )
    )
    return Group(
        heading(
            (kernel_text(listing.kernel, listing.parameters), device_text(listing.device)),
            (listing.source_name, "machine code, executed on this CPU as PTX"),
        ),
        Text(),
        *notes,
        Text(),
        _columns(("warps", "pipe", "st", "machine code", "PTX")),
        *_blocks(listing),
    )


def _blocks(listing: MachineListing) -> Iterator[RenderableType]:
    """The basic blocks; those that were never executed are passed over."""
    blocks = [list(steps) for _, steps in groupby(listing.instructions, lambda step: step.block)]
    for executed, group in groupby(blocks, lambda steps: any(step.warps for step in steps)):
        yield Text()
        if executed:
            for steps in group:
                yield from _block(listing, steps)
        else:
            count = sum(map(len, group))
            yield Text(f"{count} {plural(count, 'instruction')}, never executed", style="dim")


def _block(listing: MachineListing, steps: Sequence[ListedInstruction]) -> Iterator[RenderableType]:
    """A basic block: its source lines, each with the instructions that come from it."""
    first, last = steps[0], steps[-1]
    name = f"{first.address:04x}"
    if last.target is not None and first.address == last.target:
        name += ", a loop"
    yield Text(f"── {name}", style="bold")
    for line, part in groupby(steps, lambda step: step.source_line):
        text = listing.source_text(line).strip()
        if text:
            yield Text(f"{line}: {text}", style="cyan", overflow="fold")
        yield _table(listing, list(part))


def _table(listing: MachineListing, steps: Sequence[ListedInstruction]) -> Table:
    """Some instructions; the PTX of each stands beside the first one that comes from it."""
    rows, before = [], 0
    for step in steps:
        ptx = listing.ptx_text(step.ptx_line) if step.ptx_line != before else ""
        before = step.ptx_line
        stall = "" if step.stall is None else str(step.stall)
        rows.append((si_text(step.warps, ""), step.pipe, stall, step.text, " ".join(ptx.split())))
    return _columns(*rows)


def _columns(*rows: tuple[str, str, str, str, str]) -> Table:
    table = Table(
        Column(justify="right", width=7, no_wrap=True),
        Column(width=7, no_wrap=True),
        Column(justify="right", width=2, no_wrap=True),
        Column(ratio=4, overflow="fold"),
        Column(ratio=3, overflow="fold", style="dim"),
        box=None,
        show_header=False,
        expand=True,
        padding=(0, 1, 0, 0),
    )
    for row in rows:
        table.add_row(*map(Text, row))
    return table
