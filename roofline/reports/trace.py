"""A trace as a person reads it in a terminal."""

from __future__ import annotations

from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, Any

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
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from memlab.device.tracing.records import ElementAccess, Phase, ThreadTrace, Trace
    from memlab.kernels.launch import Dim3

STEPS_SHOWN = (24, 8)
"""Steps at the beginning and at the end of a long way; what lies between is counted."""
PHASES_SHOWN = (2, 1)
PHASE_ROWS_SHOWN = (6, 2)


def trace_report(trace: Trace) -> RenderableType:
    """Give the whole report: the thread's way, its block's phases, how often elements are read."""
    sections = [_heading(trace)]
    if not trace.followed.accesses:
        sections.append(_no_steps_note(trace))
    elif trace.phases:
        sections.extend(_phases(trace))
        sections.append(_results(trace.followed))
    else:
        sections.append(_steps(trace.followed))
    if any(each.opcode in MATRIX_PRODUCTS for each in trace.followed.operations):
        sections.append(
            Text("A × is a product of matrices by the thread's whole warp, on its tensor cores.")
        )
    sections.append(_reads(trace))
    return stack_sections(sections)


def _heading(trace: Trace) -> RenderableType:
    followed = Text.assemble(
        ("block ", "dim"),
        _index(trace.block_index, trace.grid),
        ("  thread ", "dim"),
        _index(trace.followed.thread, trace.block),
    )
    return heading(
        (
            kernel_text(trace.kernel, trace.parameters),
            f"grid {_extent(trace.grid)}, block {_extent(trace.block)}",
        ),
        (followed, "x, y as in CUDA; emulated on this CPU"),
    )


def _no_steps_note(trace: Trace) -> RenderableType:
    return Text(
        f"Thread {_index(trace.followed.thread, trace.block)} touches no memory: "
        "it has no element to compute.",
        style="yellow",
    )


def _steps(thread: ThreadTrace) -> RenderableType:
    """List what a thread does where it stages nothing: a row an operation, load or store."""
    table = bare_table(
        Column(Text("Step", style="bold"), justify="right", width=7),
        Column(Text("line", style="dim"), justify="right"),
        Column(Text("with indices", style="dim")),
        Column(Text("with subscripts", style="dim")),
        gap=2,
    )
    rows = list(enumerate(without_shown_loads(thread.steps), 1))
    for row in _first_and_last_rows(rows, STEPS_SHOWN):
        if isinstance(row, int):
            table.add_row("", "", Text(f"… {row:,} more …", style="dim"), "")
            continue
        number, step = row
        flat, named = _step_texts(step)
        table.add_row(
            Text(f"{number:,}", style="dim"),
            Text(str(step.line or ""), style="dim"),
            flat,
            Text(named if named != flat.plain else "", style="dim"),
        )
    return table


def _step_texts(step: ElementAccess | Operation) -> tuple[Text, str]:
    if isinstance(step, Operation):
        return Text(step.flat, style="cyan"), step.text
    what, _, rest = step.flat.partition(" ")
    return Text.assemble((f"{what} ", "dim"), (rest, "" if step.kind == "load" else "green")), (
        step.text
    )


def _phases(trace: Trace) -> Iterator[RenderableType]:
    """Give a table for each phase: who loads what into shared memory, what is multiplied."""
    count = trace.phases
    by_thread = [(thread, thread_phases(thread, count)) for thread in trace.threads]
    for number in _first_and_last_rows(list(range(1, count + 1)), PHASES_SHOWN, gaps=True):
        if number < 0:
            yield Text(f"… {-number:,} more phases …", style="dim")
            continue
        table = bare_table(
            Column(Text(f"Phase {number} of {count}", style="bold"), width=LABEL_COLUMNS),
            Column(Text("into shared memory", style="dim")),
            Column(Text("reads and computes", style="dim")),
            gap=2,
        )
        for thread, its in by_thread:
            _add_phase(table, trace, thread, its[number - 1])
        yield table


def _add_phase(table: Table, trace: Trace, thread: ThreadTrace, mine: Phase) -> None:
    staged = [_staged_text(each) for each in mine.staged]
    used = [_used_text(each, rank == 0) for rank, each in enumerate(mine.used)]
    rows = list(zip_longest(staged, used, fillvalue="")) or [("", "")]
    label = f"  thread {_index(thread.thread, trace.block)}"
    bold = "bold" if thread is trace.followed and len(trace.threads) > 1 else ""
    for row in _first_and_last_rows(rows, PHASE_ROWS_SHOWN):
        if isinstance(row, int):
            table.add_row("", Text(f"… {row:,} more rows …", style="dim"), "")
        else:
            table.add_row(
                Text(label, style=bold or "dim"), Text(row[0], bold), Text(row[1], "cyan")
            )
        label = ""


def _staged_text(access: ElementAccess) -> str:
    if access.kind == "atomic":
        return access.text
    return f"{value_name(access.source)} → {access.element.name}"


def _used_text(step: ElementAccess | Operation, first: bool) -> str:
    """A step, with the sign of the sum that it adds to; what comes first may begin one."""
    if step.text.startswith(("+ ", "- ")):
        return step.text
    adds = isinstance(step, Operation) and step.adds_up and not first
    return f"{'+ ' if adds else '  '}{step.text}"


def _results(thread: ThreadTrace) -> RenderableType:
    """Say what the thread writes to global memory at last."""
    written = [each for each in thread.touches("global") if each.kind != "load"]
    names = ", ".join(_result_text(each) for each in written[:4])
    more = f" and {len(written) - 4:,} more" if len(written) > 4 else ""
    line = f"Thread {', '.join(map(str, thread.thread[:2]))} writes {names}{more}"
    waits = f"; it waits at {thread.barriers:,} barriers." if thread.barriers > 1 else "."
    return Text((line if written else "The thread writes nothing") + waits)


def _result_text(access: ElementAccess) -> str:
    """What is written, and where it comes from if that is known."""
    source = "" if access.source is None else value_name(access.source)
    if access.kind == "atomic":
        return f"{access.element.label} (atomic {access.operation}{source and f' of {source}'})"
    return f"{access.element.label}{source and f' = {source}'}"


def _reads(trace: Trace) -> RenderableType:
    table = bare_table(
        Column(Text("Global memory", style="bold"), width=LABEL_COLUMNS),
        Column(Text("elements", style="dim"), justify="right"),
        Column(Text("in this block", style="dim")),
        Column(Text("over the grid", style="dim")),
        gap=2,
    )
    for use in trace.arrays:
        count = prod(use.shape)
        written = f"{len(use.block_written):,} written" if use.block_written else ""
        read = "" if written and not use.block_reads else _reads_text(use.block_reads)
        grid = "" if written and not use.block_reads else _reads_text(use.grid_reads)
        block = ", ".join(each for each in (read, written) if each)
        table.add_row(Text(f"  {use.array}", style="dim"), f"{count:,}", block, grid)
    parts: list[RenderableType] = [table]
    if any(use.grid_reads is None for use in trace.arrays):
        parts.append(_note("The grid is too large to be run whole: take smaller sizes."))
    if trace.shared_reuse is not None:
        parts.append(_note(_reuse_text(trace, trace.shared_reuse)))
    return Group(*parts)


def _note(text: str) -> RenderableType:
    return indented(Text(text, style="dim"))


def _reuse_text(trace: Trace, reuse: float) -> str:
    """Say what shared memory saves: each read there would be one of global memory without it."""
    if reuse < 1:
        share = sentence_number(100 * reuse)
        return f"No more than {share}% of what is stored in shared memory is read there."
    text = f"A value stored in shared memory is read {_times_text(reuse)} there"
    if (trace.staged_share or 0) > 1:
        return (
            f"{text}; more is stored there than is read from global memory: zeros beyond an edge, "
            "or what was computed."
        )
    if reuse == 1:
        return f"{text}, which saves no read of global memory."
    times = {count for use in trace.arrays for count in use.grid_reads or {}}
    if len(times) != 1 or trace.staged_share != 1:
        return f"{text}, so one read of global memory does the work of {sentence_number(reuse)}."
    each = times.pop()
    return (
        f"{text}: the grid reads each element {_times_text(each)} where it would be "
        f"{_times_text(each * reuse)} without shared memory, {sentence_number(reuse)} times as "
        "often."
    )


def _times_text(count: float) -> str:
    return "once" if count == 1 else f"{sentence_number(count)} times"


def _reads_text(reads: Mapping[int, int] | None) -> str:
    """Say how often elements are read: `8, 2 times each`, or `9, 1 to 4 times`."""
    if reads is None:
        return "not counted"
    if not reads:
        return "none read"
    count, low, high = sum(reads.values()), min(reads), max(reads)
    if low == high:
        return f"{count:,}, {_times_text(low)} each"
    mean = sum(times * elements for times, elements in reads.items()) / count
    return f"{count:,}, {low:,} to {high:,} times (mean {column_number(mean)})"


def _first_and_last_rows(
    rows: Sequence[Any], shown: tuple[int, int], gaps: bool = False
) -> Iterator[Any]:
    """Give the first and the last of many rows, and between them how many are left out.

    That number is negative where the rows are numbers themselves.
    """
    first, last = shown
    left_out = len(rows) - first - last
    if left_out <= 1:
        yield from rows
        return
    yield from rows[:first]
    yield -left_out if gaps else left_out
    yield from rows[-last:]


def _index(index: Dim3, extent: Dim3) -> str:
    used = 3 if extent[2] > 1 else 2
    return f"({', '.join(map(str, index[:used]))})"


def _extent(extent: Dim3) -> str:
    used = 3 if extent[2] > 1 else 2
    return extent_text(extent[:used])
