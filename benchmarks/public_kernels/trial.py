"""A trial of a public kernel: its commands run, each in a process, and what came of them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.commands import MEMLAB
from benchmarks.public_kernels.listing import PublicKernel

UNJUDGED = "unjudged"

TIMEOUT_S = 300
_WRONG_USAGE = 2
"""memlab's exit code from which on nothing was launched."""


@dataclass(frozen=True)
class Trial:
    """What came of a kernel's commands.

    Attributes:
        repository, commit, file, kernel, about: Which kernel it is.
        first_command: The first command that a user would type.
        first_result: `ran`, `wrong` (its output is not the reference's), `faulted`, `refused`
            or `timeout`.
        message: What the first command said where it did not run.
        second_command: Another command, where there is one.
        second_result: Its result, as of the first.
        why: Why the first command does not run.
        seconds: The wall time of the command that ran.
        blocks: The blocks that it emulated, of how many.
        verified: `passed` or `failed` against the reference, for how many elements; empty without
            a reference.
        check_result: `clean`, `findings`, `refused` or `timeout`; empty where check did not run.
        findings: The findings: the kind and the line of each.
        judged: What each is, in their order: `true`, `false` or `UNJUDGED`, with the reason.
    """

    repository: str
    commit: str
    file: str
    kernel: str
    about: str
    first_command: str
    first_result: str
    message: str
    second_command: str
    second_result: str
    why: str
    seconds: str
    blocks: str
    verified: str
    check_result: str
    findings: str
    judged: str


@dataclass(frozen=True)
class _Outcome:
    """The result of one command: its name, its JSON document, its message and its wall time."""

    result: str
    document: dict[str, Any]
    message: str
    seconds: float


def run_trial(kernel: PublicKernel, checkouts: Path) -> Trial:
    """Run a kernel's commands in the checkout of its repository.

    Args:
        kernel: The kernel.
        checkouts: The folder with the checkouts, each at its commit, named as its repository.
    """
    folder = checkouts / kernel.folder
    first = _run(kernel, kernel.first, folder)
    second = _run(kernel, kernel.second, folder) if kernel.second else None
    last = second if second and first.result != "ran" else first
    words = kernel.second if last is second else kernel.first
    ran = last.result in ("ran", "wrong")
    checked = _check(words, folder) if ran and kernel.check else None
    found = sorted(
        {_place(each) for each in checked.document.get("findings", ())} if checked else ()
    )
    verification = last.document.get("verification") or {}
    coverage = last.document.get("coverage") or {}
    return Trial(
        repository=kernel.repository,
        commit=kernel.commit,
        file=kernel.file,
        kernel=kernel.name,
        about=kernel.about,
        first_command=kernel.first,
        first_result=first.result,
        message="" if first.result == "ran" else first.message,
        second_command=kernel.second,
        second_result=second.result if second else "",
        why=kernel.why,
        seconds=f"{last.seconds:.1f}" if ran else "",
        blocks=f"{coverage['blocks_emulated']} of {coverage['blocks_total']}" if coverage else "",
        verified=(
            f"{verification['status']}, {verification['checked']} of {verification['total']}"
            if kernel.reference and verification
            else ""
        ),
        check_result=checked.result if checked else "",
        findings="; ".join(found),
        judged="; ".join(kernel.judged.get(place, UNJUDGED) for place in found),
    )


def _run(kernel: PublicKernel, command: str, folder: Path) -> _Outcome:
    """Run a `memlab run`, with the kernel's reference."""
    reference = f"{kernel.references}:{kernel.reference}"
    options = ["--reference", reference, *shlex.split(kernel.reference_options)]
    extra = ["--json", "--no-store", *(options if kernel.reference else [])]
    outcome = _finish(shlex.split(command), extra, folder)
    failed = (outcome.document.get("verification") or {}).get("status") == "failed"
    return replace(outcome, result="wrong") if failed else outcome


def _check(command: str, folder: Path) -> _Outcome:
    """Run `memlab check` with the words of a `memlab run`."""
    words = shlex.split(command)
    words[words.index("run")] = "check"
    outcome = _finish(words, ["--json"], folder)
    if not outcome.document:
        return outcome
    return replace(outcome, result="findings" if outcome.document["findings"] else "clean")


def _place(finding: Mapping[str, Any]) -> str:
    """A finding's kind and line."""
    return f"{finding['kind']} in line {finding['at']['line']}"


def _finish(words: list[str], extra: list[str], folder: Path) -> _Outcome:
    """Run a command to its end, and read its document or its message."""
    environment = {**os.environ, "COLUMNS": "400"}
    started = time.perf_counter()
    try:
        finished = subprocess.run(
            [*MEMLAB, *words[1:], *extra],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _Outcome("timeout", {}, f"over {TIMEOUT_S} s", TIMEOUT_S)
    seconds = time.perf_counter() - started
    try:
        document = json.loads(finished.stdout)
    except ValueError:
        document = {}
    errors = [line for line in finished.stderr.splitlines() if line.strip()]
    message = errors[-1] if errors else ""
    if finished.returncode == 0 and document:
        result = "ran"
    else:
        result = "faulted" if finished.returncode < _WRONG_USAGE else "refused"
    return _Outcome(result, document, message, seconds)
