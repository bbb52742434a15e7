"""memlab's check beside compute-sanitizer on this GPU: every planted bug and its mended twin.

    python -m benchmarks.sanitizer [FOLDER] [--jobs N] [--timeout SECONDS]

Runs `memlab check --with compute-sanitizer` on each file of `tests/data/planted`, as it is and with
`-D FIXED`, each in a process of its own, and prints both verdicts, each as soon as it is there.
With a folder, writes there `…-check.csv`, a row for each line that either of them names, and
`…-check.md`, a row a file.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.gpu_results import head as gpu_head
from benchmarks.gpu_results import prefix
from memlab.device.checking.findings import TOOLS
from memlab.device.devices import open_device, usable_gpu_names
from memlab.device.nvidia_tools import sanitizer
from memlab.errors import DeviceError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from planted import PLANTED, Planted  # noqa: E402 - it lies beside the files that it reads

TOOL_TIMEOUT_S = 40
"""For one tool of one file: a kernel whose barrier is not reached may wait for ever."""
JOBS = 9
"""Files at once: most of the time is the start of processes. Compute Sanitizer has ten ports."""

MEMLAB = "import sys; from memlab.cli.app import main; sys.exit(main())"
"""The command, of the same Python; `-P` keeps the working directory's folders out of its way."""

COLUMNS = ("file", "twin", "tool", "lines", "planted", "memlab", "compute_sanitizer", "note")

_CLEAN = "no findings"


@dataclass(frozen=True)
class Verdict:
    """What both said of one file.

    Attributes:
        planted: The file.
        fixed: Whether it was compiled with `-D FIXED`.
        document: What `memlab check --json` gave; None where it failed.
        note: What it said on stderr, or why it failed.
    """

    planted: Planted
    fixed: bool
    document: Mapping[str, Any] | None
    note: str

    @property
    def twin(self) -> str:
        """Which of the two versions of the file it is."""
        return "mended" if self.fixed else "planted"

    @property
    def has_both(self) -> bool:
        """Whether compute-sanitizer ran too."""
        return self.document is not None and "compute_sanitizer" in self.document


def judge(planted: Planted, fixed: bool, options: Sequence[str], timeout_s: float) -> Verdict:
    """Check one file in a process of its own; whatever happens there ends up in the note.

    Args:
        planted: The file.
        fixed: Whether to compile it with `-D FIXED`.
        options: More words for `memlab check`.
        timeout_s: For each tool, seconds.
    """
    longest_s = (len(TOOLS) + 1) * timeout_s + 60  # memlab's own check, and what starts them all
    words = [
        *(
            sys.executable,
            "-P",
            "-c",
            "import sys; from memlab.cli.app import main; sys.exit(main())",
        ),
        *("check", str(planted.path), *planted.words, "--json"),
        *(("-D", "FIXED") if fixed else ()),
        *("--timeout", f"{timeout_s:g}", *options),
    ]
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=longest_s)
        document = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Verdict(planted, fixed, None, f"not finished within {longest_s:g} s")
    except json.JSONDecodeError:
        last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        return Verdict(planted, fixed, None, f"exit code {done.returncode}: {last[0]}")
    return Verdict(planted, fixed, document, " ".join(done.stderr.split()))


def rows(verdict: Verdict) -> list[dict[str, str]]:
    """Give a verdict as rows: one for each line that either names, or that nothing was found."""
    same = {"file": verdict.planted.path.name, "twin": verdict.twin}
    document = verdict.document
    if document is None:
        return [_row(same, note=verdict.note)]
    found = [
        _row(
            same,
            tool=each["tool"],
            lines=" ".join(str(line) for line in each["lines"] if line),
            planted=_planted(verdict, each["tool"], each["lines"]),
            memlab=each["memlab"] or "",
            compute_sanitizer=each["compute_sanitizer"] or _missing(document, each["tool"]),
        )
        for each in document.get("side_by_side") or _alone(document)
    ]
    if document["verification"]["status"] != "skipped":
        found.append(_row(same, tool="verification", memlab=document["verification"]["status"]))
    sides = ("memlab", "compute_sanitizer") if verdict.has_both else ("memlab",)
    if not document["findings"] and not _theirs(document):
        found.insert(0, _row(same, **dict.fromkeys(sides, _CLEAN)))
    found[0]["note"] = "; ".join(
        filter(None, (verdict.note, *document.get("compute_sanitizer", {}).get("notes", ())))
    )
    return found


def _row(same: Mapping[str, str], **values: str) -> dict[str, str]:
    return {**dict.fromkeys(COLUMNS, ""), **same, **values}


def _planted(verdict: Verdict, tool: str, lines: Sequence[int]) -> str:
    """What is planted at these lines for a tool to find."""
    if verdict.fixed:
        return ""
    bugs = verdict.planted.bugs.items()
    return " ".join(kind for (whose, kind), at in bugs if whose == tool and at & {*lines})


def _alone(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where compute-sanitizer did not run: what memlab found, in the form of both."""
    return [
        {
            "tool": each["tool"],
            "lines": sorted(_lines(each)),
            "memlab": each["kind"],
            "compute_sanitizer": None,
        }
        for each in document["findings"]
    ]


def _missing(document: Mapping[str, Any], tool: str) -> str:
    """What stands for no finding: nothing, or that the tool gave no verdict."""
    beside = document.get("compute_sanitizer")
    return "no verdict" if beside is not None and tool not in beside["tools"] else ""


def _lines(finding: Mapping[str, Any]) -> set[int]:
    places = [finding["at"], finding["other"] if finding["tool"] == "racecheck" else None]
    return {each["line"] or 0 for each in places if each}


def _theirs(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = document.get("compute_sanitizer", {}).get("findings", [])
    return found


# --- How well each did -------------------------------------------------------------------------


def summary(verdict: Verdict, findings: Callable[[Mapping[str, Any]], list[Any]]) -> str:
    """Say how one of the two did on a file, in a few words.

    Args:
        verdict: What both said.
        findings: Chooses the findings of one of them from the document.
    """
    if verdict.document is None:
        return "failed"
    found = findings(verdict.document)
    tools = " and ".join(dict.fromkeys(each["tool"] for each in found))
    if verdict.fixed:
        return tools or _CLEAN
    places = {(tool, line) for (tool, _), lines in verdict.planted.bugs.items() for line in lines}
    hit = places & {(each["tool"], line) for each in found for line in _lines(each)}
    if not places:
        return tools or _CLEAN
    return "found" if hit == places else f"{len(hit)} of {len(places)} places" if hit else "-"


def _of_memlab(verdict: Verdict) -> str:
    document = verdict.document or {}
    failed = document.get("verification", {}).get("status") == "failed"
    return summary(verdict, _ours) + (" (verification failed)" if failed else "")


def _of_sanitizer(verdict: Verdict) -> str:
    if not verdict.has_both or verdict.document is None:
        return "did not run"
    given = verdict.document["compute_sanitizer"]["tools"]
    silent = [tool for tool in TOOLS if tool not in given]
    said = summary(verdict, lambda document: list(_theirs(document)))
    if verdict.planted.beyond_sanitizer and said == "-":
        said += f" ({verdict.planted.beyond_sanitizer})"
    return f"{said} (no verdict: {', '.join(silent)})" if silent else said


def _ours(document: Mapping[str, Any]) -> list[Any]:
    return list(document["findings"])


def markdown(verdicts: Iterable[Verdict], head: str) -> str:
    """Give a table, a row a file: what is planted, how each did, and the mended twin."""
    by_name: dict[str, dict[bool, Verdict]] = {}
    for each in verdicts:
        by_name.setdefault(each.planted.path.name, {})[each.fixed] = each
    lines = [
        head,
        "",
        "| file | planted | memlab | compute-sanitizer | mended: memlab | compute-sanitizer |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, twins in sorted(by_name.items()):
        bugs = [f"{tool}: {kind}" for tool, kind in twins[False].planted.bugs]
        cells = [
            name,
            ", ".join(bugs) or "a wrong result",
            _of_memlab(twins[False]),
            _of_sanitizer(twins[False]),
            _of_memlab(twins[True]),
            _of_sanitizer(twins[True]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Check all files, print, and write where a folder is given; 3 without a GPU."""
    words = argparse.ArgumentParser(prog="benchmarks.sanitizer")
    words.add_argument("folder", nargs="?", type=Path)
    words.add_argument("--jobs", type=int, default=JOBS)
    words.add_argument("--timeout", type=float, default=TOOL_TIMEOUT_S, help="seconds a tool")
    given = words.parse_args(arguments)
    try:
        properties = open_device(next(iter(usable_gpu_names()), "0")).properties
    except DeviceError as error:
        print(f"no comparison: {error}", file=sys.stderr)
        return DeviceError.exit_code
    if sanitizer.find_sanitizer() is None:
        print(f"no compute-sanitizer: {sanitizer.INSTALL_ADVICE}", file=sys.stderr)
        return DeviceError.exit_code

    options = ("--device", "0", "--with", "compute-sanitizer", "--quiet")
    cases = [(planted, fixed) for planted in PLANTED for fixed in (False, True)]
    with ThreadPoolExecutor(given.jobs) as pool:
        verdicts = []
        for each in pool.map(lambda case: judge(*case, options, given.timeout), cases):
            verdicts.append(each)
            said = f"memlab: {_of_memlab(each)}; compute-sanitizer: {_of_sanitizer(each)}"
            print(f"{each.planted.path.name}, {each.twin}: {said}", file=sys.stderr, flush=True)
    if not any(each.has_both for each in verdicts):
        print(f"compute-sanitizer never ran: {verdicts[0].note}", file=sys.stderr)
        return DeviceError.exit_code

    release = next(each.document for each in verdicts if each.has_both and each.document)
    head = (
        f"{gpu_head(properties.name)}, "
        f"compute-sanitizer {release['compute_sanitizer']['version']}, memlab {version('memlab')}"
    )
    text = markdown(verdicts, head)
    print(text)
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
        name = prefix(properties.name)
        (given.folder / f"{name}-check.md").write_text(text)
        with (given.folder / f"{name}-check.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for each in verdicts:
                writer.writerows(rows(each))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
