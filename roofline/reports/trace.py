"""The report of a trace in a terminal."""

from __future__ import annotations

from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, TypeVar

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from memlab.device.tracing.records import (
    MATRIX_PRODUCTS,
    Operation,
    thread_phases,
    value_name,
    without_shown_loads,
)
from memlab.kernels.launch import NO_CLUSTER
from memlab.roofline.reports.parts import (
    LABEL_COLUMNS,
    bare_table,
    heading,
    indented,
    kernel_text,
    stack_sections,
)
from memlab.roofline.units import column_number, extent_text, sentence_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from memlab.device.tracing.records import ElementAccess, Phase, Step, ThreadTrace, Trace
    from memlab.kernels.launch import Dim3

Row = TypeVar("Row")

STEPS_SHOWN = (24, 8)  # at the beginning and at the end of a long trace
PHASES_SHOWN = (2, 1)
PHASE_ROWS_SHOWN = (6, 2)
RESULTS_SHOWN = 4


def trace_report(trace: Trace) -> RenderableType:
    """The report: the thread's steps, its block's phases, the reads of each array."""
    thread = _index(trace.followed.thread, trace.block)
    place = Text.assemble(
        *(("block ", "dim"), _index(trace.block_index, trace.grid)),
        *(("  thread ", "dim"), thread),
    )
    launch = f"grid {_extent(trace.grid)}, block {_extent(trace.block)}"
    if trace.cluster != NO_CLUSTER:
        place.append_text(
            Text.assemble(("  rank ", "dim"), f"{trace.rank} of {prod(trace.cluster)}")
        )
    sections: list[RenderableType] = [
        heading(
            (kernel_text(trace.kernel, trace.parameters), launch),
            (place, "x, y as in CUDA; emulated on this CPU"),
        )
    ]
    if not trace.followed.accesses:
        idle = f"Thread {thread} touches no memory: it has no element to compute."
        sections.append(Text(idle, style="yellow"))
    elif trace.phases:
        sections += [*_phases(trace), _results(trace.followed)]
    else:
        sections.append(_steps(trace.followed))
    if any(operation.opcode in MATRIX_PRODUCTS for operation in trace.followed.operations):
        product = "A × is a product of matrices by the thread's whole warp, on its tensor cores."
        sections.append(Text(product))
    return stack_sections([*sections, _reads(trace)])


def _abridged(
    rows: Sequence[Row], shown: tuple[int, int], gap: Callable[[int], Row]
) -> Sequence[Row]:
    """The first and the last of many rows, between them a row for the number left out."""
    first, last = shown
    left_out = len(rows) - first - last
    return rows if left_out <= 1 else [*rows[:first], gap(left_out), *rows[-last:]]


def _table(*titles: str, width: int = LABEL_COLUMNS, numbers: tuple[int, ...] = ()) -> Table:
    """A table whose first column has a width, and some of whose columns hold numbers."""
    columns = [
        Column(
            Text(title, style="dim" if position else "bold"),
            width=None if position else width,
            justify="right" if position in numbers else "left",
        )
        for position, title in enumerate(titles)
    ]
    return bare_table(*columns, gap=2)


def _steps(thread: ThreadTrace) -> RenderableType:
    """A row per step of a thread that uses no shared memory."""
    table = _table("Step", "line", "with indices", "with subscripts", width=7, numbers=(0, 1))
    steps: list[tuple[int, Step | None]] = [*enumerate(without_shown_loads(thread.steps), 1)]
    for number, step in _abridged(steps, STEPS_SHOWN, lambda left_out: (left_out, None)):
        if step is None:
            table.add_row("", "", Text(f"… {number:,} more …", style="dim"))
            continue
        style = "cyan" if isinstance(step, Operation) else "" if step.kind == "load" else "green"
        table.add_row(
            Text(f"{number:,}", style="dim"),
            Text(str(step.line or ""), style="dim"),
            Text(step.flat, style=style),
            Text(step.text if step.text != step.flat else "", style="dim"),
        )
    return table


def _phases(trace: Trace) -> Iterator[RenderableType]:
    """A table per phase: the elements that are staged, and the operations with them."""
    phases = [(thread, thread_phases(thread, trace.phases)) for thread in trace.threads]
    numbers: Sequence[int | str] = range(trace.phases)
    for number in _abridged(numbers, PHASES_SHOWN, lambda n: f"… {n:,} more phases …"):
        if isinstance(number, str):
            yield Text(number, style="dim")
            continue
        title = f"Phase {number + 1} of {trace.phases}"
        table = _table(title, "into shared memory", "reads and computes")
        for thread, its in phases:
            bold = "bold" if thread is trace.followed and len(trace.threads) > 1 else ""
            label = f"  thread {_index(thread.thread, trace.block)}"
            for staged, used in _phase_rows(its[number], bold):
                table.add_row(Text(label, style=bold or "dim"), staged, Text(used, "cyan"))
                label = ""
        yield table


def _phase_rows(phase: Phase, style: str) -> Sequence[tuple[Text, str]]:
    """The stores of a thread to shared memory, with its operations next to them."""
    staged = [
        access.text
        if access.kind == "atomic"
        else f"{value_name(access.source)} → {access.element.name}"
        for access in phase.staged
    ]
    used = [_used_text(step, first=step is phase.used[0]) for step in phase.used]
    rows = [(Text(left, style), right) for left, right in zip_longest(staged, used, fillvalue="")]
    return _abridged(
        rows or [(Text(), "")],
        PHASE_ROWS_SHOWN,
        lambda left_out: (Text(f"… {left_out:,} more rows …", style="dim"), ""),
    )


def _used_text(step: Step, *, first: bool) -> str:
    """A step, with the sign of the sum that it adds to; the first may begin a sum."""
    if step.text.startswith(("+ ", "- ")):
        return step.text
    adds = isinstance(step, Operation) and step.adds_up and not first
    return f"{'+ ' if adds else '  '}{step.text}"


def _results(thread: ThreadTrace) -> RenderableType:
    """The elements of global memory that the thread writes."""
    written = [access for access in thread.touches("global") if access.kind != "load"]
    line = "The thread writes nothing"
    if written:
        names = ", ".join(_result_text(access) for access in written[:RESULTS_SHOWN])
        line = f"Thread {', '.join(map(str, thread.thread[:2]))} writes {names}"
    if len(written) > RESULTS_SHOWN:
        line += f" and {len(written) - RESULTS_SHOWN:,} more"
    if thread.barriers > 1:
        line += f"; it waits at {thread.barriers:,} barriers"
    return Text(f"{line}.")


def _result_text(access: ElementAccess) -> str:
    label, source = access.element.label, value_name(access.source, computed="")
    if access.kind == "atomic":
        return f"{label} (atomic {access.operation}{source and f' of {source}'})"
    return f"{label}{source and f' = {source}'}"


def _reads(trace: Trace) -> RenderableType:
    """How often the block and the grid read the elements of each array."""
    near = "in this block" if trace.cluster == NO_CLUSTER else "in this cluster"
    table = _table("Global memory", "elements", near, "over the grid", numbers=(1,))
    for use in trace.arrays:
        block, grid = _reads_text(use.block_reads), _reads_text(use.grid_reads)
        if use.block_written:
            written = f"{len(use.block_written):,} written"
            block, grid = (f"{block}, {written}", grid) if use.block_reads else (written, "")
        table.add_row(Text(f"  {use.array}", style="dim"), f"{prod(use.shape):,}", block, grid)
    notes = []
    if any(use.grid_reads is None for use in trace.arrays):
        notes.append("The grid is too large to be run whole: take smaller sizes.")
    if trace.shared_reuse is not None:
        notes.append(_reuse_text(trace, trace.shared_reuse))
    return Group(table, *(indented(Text(note, style="dim")) for note in notes))


def _reuse_text(trace: Trace, reuse: float) -> str:
    """How many reads of global memory the reads of shared memory save."""
    if reuse < 1:
        share = sentence_number(100 * reuse)
        return f"No more than {share}% of what is stored in shared memory is read there."
    text = f"A value stored in shared memory is read {_times(reuse)} there"
    if (trace.staged_share or 0) > 1:
        return (
            f"{text}; more is stored there than is read from global memory: zeros beyond an edge, "
            "or what was computed."
        )
    if reuse == 1:
        return f"{text}, which saves no read of global memory."
    counts = {count for use in trace.arrays for count in use.grid_reads or {}}
    if len(counts) != 1 or trace.staged_share != 1:
        return f"{text}, so one read of global memory does the work of {sentence_number(reuse)}."
    (count,) = counts
    return (
        f"{text}: the grid reads each element {_times(count)} where it would be "
        f"{_times(count * reuse)} without shared memory, {sentence_number(reuse)} times as often."
    )


def _times(count: float) -> str:
    return "once" if count == 1 else f"{sentence_number(count)} times"


def _reads_text(reads: Mapping[int, int] | None) -> str:
    """How often elements are read: `8, 2 times each`, or `9, 1 to 4 times (mean 2)`."""
    if not reads:
        return "not counted" if reads is None else "none read"
    count, low, high = sum(reads.values()), min(reads), max(reads)
    if low == high:
        return f"{count:,}, {_times(low)} each"
    mean = sum(times * elements for times, elements in reads.items()) / count
    return f"{count:,}, {low:,} to {high:,} times (mean {column_number(mean)})"


def _index(index: Dim3, extent: Dim3) -> str:
    return f"({', '.join(map(str, index[: 3 if extent[2] > 1 else 2]))})"


def _extent(extent: Dim3) -> str:
    return extent_text(extent[: 3 if extent[2] > 1 else 2])
