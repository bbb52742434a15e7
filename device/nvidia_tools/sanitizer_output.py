"""Reads the output of NVIDIA's Compute Sanitizer into memlab's records of findings.

It reads the output of releases 2021.3 to 2026.3. Releases from 2025.2 on print saved records
without a GPU (`--read FILE`), with which the formats below were verified; those of older releases
come from published reports.
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
"""Before release 2023 the function follows the line; later it precedes the file."""
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
"""The first words of faults that the hardware reports; they may lack a location."""

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
"""memlab's kinds of mistakes, by phrases of Compute Sanitizer; others keep its words."""


def parse_log(text: str, tool: Tool, launch: Launch) -> tuple[list[CheckFinding], list[str]]:
    """Read the log of a tool.

    Args:
        text: The log.
        tool: The tool.
        launch: The launch, whose source gives the text of lines.

    Returns:
        Each mistake once, in the order of lines, with the lowest block and thread that made it;
        and the messages that are not findings.
    """
    findings: dict[tuple[object, ...], CheckFinding] = {}
    notes: list[str] = []
    for message in _split_messages(text):
        parsed = list(_parse_message(message, tool, launch))
        if not parsed:
            notes.append(f"{tool}: {message[0].strip()}")
        for finding in parsed:
            key = (finding.kind, finding.space, finding.lines)
            known = findings.get(key)
            if known is None:
                findings[key] = finding
            else:
                first = min(known, finding, key=_thread_order)
                findings[key] = replace(first, count=known.count + finding.count)
    return sorted(findings.values(), key=lambda finding: (finding.at.line, finding.kind)), notes


def sanitizer_errors(text: str) -> list[str]:
    """The errors of Compute Sanitizer itself, after which the log may be incomplete."""
    matches = map(_ERROR.match, map(strip_log_prefix, text.splitlines()))
    return [match[1].removeprefix("Error: ").strip() for match in matches if match]


def strip_log_prefix(line: str) -> str:
    """Remove the prefix of a log's line; a line without it becomes empty."""
    match = _LINE.match(line)
    return (match[1] or "") if match else ""


def _split_messages(text: str) -> Iterator[list[str]]:
    """Split a log into messages: a first line and the indented lines that follow it."""
    message: list[str] = []
    for line in map(strip_log_prefix, text.splitlines()):
        if line.startswith("  ") and message:
            message.append(line.strip())
            continue
        if message and not _ROUTINE_MESSAGE.match(message[0]):
            yield message
        message = [line.strip()] if line.strip() else []
    if message and not _ROUTINE_MESSAGE.match(message[0]):
        yield message


def _parse_message(message: list[str], tool: Tool, launch: Launch) -> Iterator[CheckFinding]:
    """Read the findings of one message, if it has any."""
    head, *rest = message
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
    """Classify a mistake: by the barrier's error, the reason of an invalid access, or the head."""
    named, words = _ERROR_CLASS.search(head), head
    if named:
        words = named[1]
    elif _INVALID_ACCESS.match(head):
        # Frames are skipped: a kernel may be called `misaligned`.
        cause = next((line for line in rest if not _FRAME.match(line)), "out of bounds")
        reason = _REASON.match(cause)
        words = reason[1] if reason else cause
    known = (kind for part, kind in _KIND_BY_PHRASE.items() if part in words.lower())
    return next(known, words[:1].lower() + words[1:])


def _parse_race_analysis(
    race: re.Match[str], rest: Iterable[str], tool: Tool, launch: Launch
) -> Iterator[CheckFinding]:
    """Read a race analysis: one access, and all accesses with which it races."""
    first = _parse_location([race[2]], launch)
    for partner in filter(None, map(_RACE_WITH.match, rest)):
        hazards = _HAZARDS.search(partner[2])
        yield CheckFinding(
            tool,
            "RAW or WAR" if "Read" in (race[1], partner[1]) else "WAW",
            _race_message(race[1], partner[1]),
            "shared",
            "",
            first,
            _parse_location([partner[2]], launch),
            int(hazards[1].replace(",", "")) if hazards else 1,
        )


def _parse_hazard(
    hazard: re.Match[str], rest: Sequence[str], tool: Tool, launch: Launch
) -> Iterator[CheckFinding]:
    """Read one hazard: two threads, each followed by its frames."""
    head = hazard.string
    head_block = _HAZARD_BLOCK.search(head)
    starts = [index for index, line in enumerate(rest) if _HAZARD_THREAD.match(line)]
    accesses: list[tuple[str, SourceLocation]] = []
    for start, end in zip(starts, [*starts[1:], len(rest)], strict=True):
        match = _HAZARD_THREAD.match(rest[start])
        if match:
            location = _parse_location([match[8], *rest[start + 1 : end]], launch)
            thread = _dim3(match.groups()[1:4])
            block: Dim3 | None = None
            if match[5]:
                block = _dim3(match.groups()[4:7])
            elif head_block:
                block = _dim3(head_block.groups())
            accesses.append((match[1], replace(location, block=block, thread=thread)))
    if len(accesses) == 2:
        (first, first_location), (second, second_location) = accesses
        match = _SPACE.search(head)
        space = match[1] if match else "global" if " global " in head else ""
        message = _race_message(first, second)
        yield CheckFinding(tool, hazard[1], message, space, "", first_location, second_location)


def _race_message(first: str, second: str) -> str:
    return f"{first} and {second.lower()} that nothing orders"


def _parse_location(lines: Iterable[str], launch: Launch) -> SourceLocation:
    """Read a location: the line of the first frame in the kernel's file, the block and thread."""
    block: Dim3 | None = None
    thread: Dim3 | None = None
    number = 0
    for line in lines:
        match = _THREAD.search(line)
        if match:
            thread, block = _dim3(match.groups()[:3]), _dim3(match.groups()[3:])
            continue
        frame = _FRAME_LOCATION.match(line)
        if frame and not number and Path(frame[1]).name == Path(launch.source_name).name:
            number = int(frame[2])
    source = source_lines(launch.source)
    text = source[number - 1].strip() if 0 < number <= len(source) else ""
    return SourceLocation(number, text, block, thread)


def _dim3(words: Sequence[str]) -> Dim3:
    x, y, z = map(int, words)
    return x, y, z


def _thread_order(finding: CheckFinding) -> tuple[Dim3, Dim3]:
    """The key for CUDA's order of blocks and threads, x fastest."""
    block, thread = finding.at.block or (0, 0, 0), finding.at.thread or (0, 0, 0)
    return block[::-1], thread[::-1]
