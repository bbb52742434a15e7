"""Reads the text of NVIDIA's Compute Sanitizer into memlab's records of findings.

It reads what releases 2021.3 to 2026.3 print. Those from 2025.2 on print saved records without a
GPU (`--read FILE`), and the forms below were checked with it; those of older releases come from
reports that people published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from memlab.device.checking.findings import CheckFinding, SourceLocation, Tool
from memlab.kernels.launch import Dim3, Launch, source_lines

_LINE = re.compile(r"^\s*=========(?: (.*))?$")
_SPACE = re.compile(r"__(\w+)__")
_INVALID_ACCESS = re.compile(r"(?:Potential i|I)nvalid (?:__|.* of size )")
_ERROR_CLASS = re.compile(r"(?:error detected\.|encountered :) (.*?)\.?$")
_REASON = re.compile(r"(?:Access (?:to|at)|Address|Barrier at) 0x\w+(?: in CTA \d+)?(?: is)? (.+)")
_RACE = re.compile(r"(?:\w+: )?Race reported between (\w+) access (at .*)")
_RACE_WITH = re.compile(r"and (\w+) access (at .*)")
_HAZARDS = re.compile(r"\[([\d,]+) hazards?\]$")
_HAZARD = re.compile(r"(?:\w+: ?)?(?:\(.*?\) )?Potential (RAW|WAR|WAW) hazard detected")
_HAZARD_BLOCK = re.compile(r"in block \((\d+), ?(\d+), ?(\d+)\)")
_HAZARD_THREAD = re.compile(
    r".*?(Read|Write|Atomic)\b.* Thread \((\d+), ?(\d+), ?(\d+)\)"
    r"(?: in Block \((\d+), ?(\d+), ?(\d+)\))?.*? (at .*)"
)
_FRAME_LOCATION = re.compile(r"(?:at .*? in |Device Frame: ?(?:.*? in )?)(.+?):(\d+)(?=:|$| \[)")
"""Before release 2023 the function stands behind the line, not before the file."""
_THREAD = re.compile(r"by thread \((\d+), ?(\d+), ?(\d+)\) in block \((\d+), ?(\d+), ?(\d+)\)")
_FRAME = re.compile(r"at |by thread |and |in |Device Frame:|Saved host|Host Frame:")
_ROUTINE_MESSAGE = re.compile(
    r"COMPUTE-SANITIZER$|\w+ SUMMARY: (?!.* (?:not printed|skipped))|Saved host backtrace"
)
_ERROR = re.compile(r"((?:Internal Sanitizer )?Error: (?!Race |(?:\(.*?\) )?Potential ).*)")

_HARDWARE_EXCEPTIONS = (
    *("Lane ", "Warp ", "Device ", "User ", "Hardware ", "Illegal ", "Invalid ", "Stack "),
    *("Misaligned ", "Out-of-range ", "Trace/breakpoint "),
)
"""How a fault begins that the hardware reports; it may come without a place."""

_KIND_BY_PHRASE = {
    "uninitialized": "uninitialized read",
    "misaligned": "misaligned",
    "out of bounds": "out of bounds",
    "out-of-range": "out of bounds",
    "illegal address": "out of bounds",
    "breakpoint trap": "trap",
    "assert": "trap",
    "divergent thread": "divergent barrier",
    "invalid arguments": "invalid mask",
}
"""memlab's kinds by words of Compute Sanitizer's; what has none here keeps its own."""


def parse_log(text: str, tool: Tool, launch: Launch) -> tuple[list[CheckFinding], list[str]]:
    """Read what a tool wrote.

    Args:
        text: Its log.
        tool: Which one.
        launch: What ran: its source gives the lines their text.

    Returns:
        Each mistake once, in the order of lines, with the lowest block and thread that made it;
        and the messages that are no finding.
    """
    found: dict[tuple[object, ...], CheckFinding] = {}
    notes: list[str] = []
    for record in _split_messages(text):
        read = list(_parse_message(record, tool, launch))
        if not read:
            notes.append(f"{tool}: {record[0].strip()}")
        for each in read:
            key = (each.kind, each.space, each.lines)
            before = found.get(key)
            if before is None:
                found[key] = each
            else:
                first = min(before, each, key=_thread_order)
                found[key] = replace(first, count=before.count + each.count)
    return sorted(found.values(), key=lambda each: (each.at.line, each.kind)), notes


def sanitizer_errors(text: str) -> list[str]:
    """Give the errors of Compute Sanitizer itself: it may not have seen all of the launch."""
    matches = map(_ERROR.match, map(strip_log_prefix, text.splitlines()))
    return [match[1].removeprefix("Error: ").strip() for match in matches if match]


def strip_log_prefix(line: str) -> str:
    """Give a line of a log without the mark that all of its lines begin with."""
    match = _LINE.match(line)
    return (match[1] or "") if match else ""


def _split_messages(text: str) -> Iterator[list[str]]:
    """Cut a log into messages: a first line, and those below it that are indented."""
    record: list[str] = []
    for line in map(strip_log_prefix, text.splitlines()):
        if line.startswith("  ") and record:
            record.append(line.strip())
            continue
        if record and not _ROUTINE_MESSAGE.match(record[0]):
            yield record
        record = [line.strip()] if line.strip() else []
    if record and not _ROUTINE_MESSAGE.match(record[0]):
        yield record


def _parse_message(record: list[str], tool: Tool, launch: Launch) -> Iterator[CheckFinding]:
    """Read one message; what is no finding gives none."""
    head, *rest = record
    race, hazard = _RACE.match(head), _HAZARD.match(head)
    if race:
        yield from _parse_race_analysis(race, rest, tool, launch)
    elif hazard:
        yield from _parse_hazard(hazard, rest, tool, launch)
    elif head.startswith(_HARDWARE_EXCEPTIONS) or any(map(_THREAD.search, rest)):
        space, named = _SPACE.search(head), _ERROR_CLASS.search(head)
        yield CheckFinding(
            tool,
            _classify_mistake(head, rest),
            named[1] if named else head,
            space[1] if space else "",
            "",
            _parse_location(rest, launch),
        )


def _classify_mistake(head: str, rest: Iterable[str]) -> str:
    """Name what is wrong: the barrier's class, why an access is invalid, else the first line."""
    named, words = _ERROR_CLASS.search(head), head
    if named:
        words = named[1]
    elif _INVALID_ACCESS.match(head):
        # No frame: a kernel may be called `misaligned`.
        why = next((line for line in rest if not _FRAME.match(line)), "out of bounds")
        reason = _REASON.match(why)
        words = reason[1] if reason else why
    known = (kind for part, kind in _KIND_BY_PHRASE.items() if part in words.lower())
    return next(known, words[:1].lower() + words[1:])


def _parse_race_analysis(
    race: re.Match[str], rest: Iterable[str], tool: Tool, launch: Launch
) -> Iterator[CheckFinding]:
    """Read an analysis: one access, and all that it races with."""
    first = _parse_location([race[2]], launch)
    for other in filter(None, map(_RACE_WITH.match, rest)):
        hazards = _HAZARDS.search(other[2])
        yield CheckFinding(
            tool,
            "RAW or WAR" if "Read" in (race[1], other[1]) else "WAW",
            _race_message(race[1], other[1]),
            "shared",
            "",
            first,
            _parse_location([other[2]], launch),
            int(hazards[1].replace(",", "")) if hazards else 1,
        )


def _parse_hazard(
    hazard: re.Match[str], rest: Sequence[str], tool: Tool, launch: Launch
) -> Iterator[CheckFinding]:
    """Read one hazard: two threads, each with the frames below it."""
    head = hazard.string
    whole = _HAZARD_BLOCK.search(head)
    starts = [index for index, line in enumerate(rest) if _HAZARD_THREAD.match(line)]
    sides: list[tuple[str, SourceLocation]] = []
    for start, end in zip(starts, [*starts[1:], len(rest)], strict=True):
        by = _HAZARD_THREAD.match(rest[start])
        if by:
            at = _parse_location([by[8], *rest[start + 1 : end]], launch)
            block = _dim3(by.groups()[4:7]) if by[5] else _dim3(whole.groups()) if whole else None
            sides.append((by[1], replace(at, block=block, thread=_dim3(by.groups()[1:4]))))
    if len(sides) == 2:
        (one, at), (two, other) = sides
        space = _SPACE.search(head)
        where = space[1] if space else "global" if " global " in head else ""
        yield CheckFinding(tool, hazard[1], _race_message(one, two), where, "", at, other)


def _race_message(one: str, two: str) -> str:
    return f"{one} and {two.lower()} that nothing orders"


def _parse_location(lines: Iterable[str], launch: Launch) -> SourceLocation:
    """Read where something happened: in the kernel's own file, if any frame is."""
    block: Dim3 | None = None
    thread: Dim3 | None = None
    number = 0
    for line in lines:
        by = _THREAD.search(line)
        if by:
            thread, block = _dim3(by.groups()[:3]), _dim3(by.groups()[3:])
            continue
        at = _FRAME_LOCATION.match(line)
        if at and not number and Path(at[1]).name == Path(launch.source_name).name:
            number = int(at[2])
    source = source_lines(launch.source)
    text = source[number - 1].strip() if 0 < number <= len(source) else ""
    return SourceLocation(number, text, block, thread)


def _dim3(words: Sequence[str]) -> Dim3:
    x, y, z = map(int, words)
    return x, y, z


def _thread_order(finding: CheckFinding) -> tuple[Dim3, Dim3]:
    """Order findings of a kind as CUDA numbers blocks and threads, x fastest."""
    block, thread = finding.at.block or (0, 0, 0), finding.at.thread or (0, 0, 0)
    return block[::-1], thread[::-1]
