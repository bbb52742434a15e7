"""Reads the text of NVIDIA's Compute Sanitizer into memlab's records of findings.

What it looks like: "Compute Sanitizer" user manual, release 2026.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from memlab.device.findings import Finding, Place, Tool
from memlab.kernels.launch import Dim3, Launch, source_lines

_LINE = re.compile(r"^\s*=========(?: (.*))?$")
_INVALID = re.compile(r"Invalid __(\w+)__ (\w+) of size ([\d,]+) bytes?")
_UNINITIALIZED = re.compile(r"Uninitialized __(\w+)__ memory (\w+) of size ([\d,]+) bytes?")
_RACE = re.compile(r"(?:\w+: )?Race reported between (Read|Write) access (at .*)")
_RACE_WITH = re.compile(r"and (Read|Write) access (at .*)")
_BARRIER = re.compile(r"Barrier error detected\. (.*?)\.?$")
_AT = re.compile(r"(?:at|Device Frame:).*? in (.+?):(\d+)(?=:|$| \[)")
"""Before release 2023 the function stands behind the line, not before the file."""
_HAZARDS = re.compile(r"\[(\d+) hazards?\]$")
_THREAD = re.compile(r"by thread \((\d+), ?(\d+), ?(\d+)\) in block \((\d+), ?(\d+), ?(\d+)\)")
_SILENT = re.compile(r"COMPUTE-SANITIZER$|\w+ SUMMARY: (?!.* not printed)|Saved host backtrace")

_BARRIER_KINDS = {"Invalid arguments": "invalid mask"}
"""Of synccheck; all its other classes are divergence."""


def parse(text: str, tool: Tool, launch: Launch) -> tuple[list[Finding], list[str]]:
    """Read what a tool wrote.

    Args:
        text: Its log.
        tool: Which one.
        launch: What ran: its source gives the lines their text.

    Returns:
        Each mistake once, in the order of lines, with the lowest block and thread that made it;
        and the messages that are no finding.
    """
    found: dict[tuple[object, ...], Finding] = {}
    notes: list[str] = []
    for record in _records(text):
        read = list(_read(record, tool, launch))
        if not read:
            notes.append(f"{tool}: {record[0].strip()}")
        for each in read:
            key = (each.kind, each.space, each.lines)
            before = found.get(key)
            if before is None:
                found[key] = each
            else:
                first = min(before, each, key=_order)
                found[key] = replace(first, count=before.count + each.count)
    return sorted(found.values(), key=lambda each: (each.at.line, each.kind)), notes


def message(line: str) -> str:
    """Give a line of a log without the mark that all of its lines begin with."""
    match = _LINE.match(line)
    return (match[1] or "") if match else ""


def _records(text: str) -> Iterator[list[str]]:
    """Cut a log into messages: a first line, and those below it that are indented."""
    record: list[str] = []
    for line in map(message, text.splitlines()):
        if line.startswith("  ") and record:
            record.append(line.strip())
            continue
        if record and not _SILENT.match(record[0]):
            yield record
        record = [line.strip()] if line.strip() else []
    if record and not _SILENT.match(record[0]):
        yield record


def _read(record: list[str], tool: Tool, launch: Launch) -> Iterator[Finding]:
    """Read one message; what is no finding gives none."""
    head, *rest = record
    invalid, uninitialized = _INVALID.search(head), _UNINITIALIZED.search(head)
    race, barrier = _RACE.search(head), _BARRIER.search(head)
    access = invalid or uninitialized
    if access:
        misaligned = any("misaligned" in line for line in rest)
        kind = "misaligned" if misaligned else "out of bounds"
        yield Finding(
            tool,
            kind if invalid else "uninitialized read",
            head,
            access[1],
            "",
            _place(rest, launch),
        )
    elif barrier:
        kind = _BARRIER_KINDS.get(barrier[1], "divergent barrier")
        yield Finding(tool, kind, barrier[1], "", "", _place(rest, launch))
    elif race:
        first = _place([race[2]], launch)
        others = [match for match in map(_RACE_WITH.search, rest) if match]
        for other in others:
            kind = "WAW" if race[1] == other[1] == "Write" else "RAW or WAR"
            hazards = _HAZARDS.search(other[2])
            yield Finding(
                tool,
                kind,
                f"{race[1]} and {other[1].lower()} that nothing orders",
                "shared",
                "",
                first,
                _place([other[2]], launch),
                int(hazards[1]) if hazards else 1,
            )


def _place(lines: Iterable[str], launch: Launch) -> Place:
    """Read where something happened: in the kernel's own file, if any frame is."""
    block: Dim3 | None = None
    thread: Dim3 | None = None
    number = 0
    for line in lines:
        by = _THREAD.search(line)
        if by:
            numbers = [int(each) for each in by.groups()]
            thread = (numbers[0], numbers[1], numbers[2])
            block = (numbers[3], numbers[4], numbers[5])
            continue
        at = _AT.match(line)
        if at and not number and Path(at[1]).name == Path(launch.source_name).name:
            number = int(at[2])
    source = source_lines(launch.source)
    text = source[number - 1].strip() if 0 < number <= len(source) else ""
    return Place(number, text, block, thread)


def _order(finding: Finding) -> tuple[Dim3, Dim3]:
    """Order findings of a kind as CUDA numbers blocks and threads, x fastest."""
    block, thread = finding.at.block or (0, 0, 0), finding.at.thread or (0, 0, 0)
    return block[::-1], thread[::-1]
