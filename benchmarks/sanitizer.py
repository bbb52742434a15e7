"""memlab's check and compute-sanitizer on this GPU: every planted bug, and the fixed version.

    python -m benchmarks.sanitizer [FOLDER] [--jobs N] [--timeout SECONDS]

Runs `memlab check --with compute-sanitizer` on each file of `tests/data/planted`, as it is and with
`-D FIXED`, each in a separate process, and prints both verdicts when they are known. With a folder,
writes `…-check.csv`, one row for each line that one of them names, and `…-check.md`, one row per
file.
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
from planted import PLANTED, Planted  # noqa: E402 - it is in the folder of the tests' support

TOOL_TIMEOUT_S = 40
"""The limit of one tool for one file, seconds: a kernel may wait forever at a barrier."""
JOBS = 9
"""Files at once: most of the time is the start of processes. Compute Sanitizer has ten ports."""

MEMLAB = "import sys; from memlab.cli.app import main; sys.exit(main())"
"""The command as a Python program; `-P` keeps the folders of the working directory off its path."""

COLUMNS = ("file", "twin", "tool", "lines", "planted", "memlab", "compute_sanitizer", "note")

_CLEAN = "no findings"


@dataclass(frozen=True)
class Verdict:
    """The verdicts of memlab and compute-sanitizer on one file.

    Attributes:
        planted: The file.
        fixed: Whether it was compiled with `-D FIXED`.
        document: The output of `memlab check --json`; None if it failed.
        note: Its messages on stderr, or why it failed.
    """

    planted: Planted
    fixed: bool
    document: Mapping[str, Any] | None
    note: str

    @property
    def twin(self) -> str:
        """The version of the file: `planted` or `mended`."""
        return "mended" if self.fixed else "planted"

    @property
    def has_both(self) -> bool:
        """Whether compute-sanitizer also ran."""
        return self.document is not None and "compute_sanitizer" in self.document


def judge(planted: Planted, fixed: bool, options: Sequence[str], timeout_s: float) -> Verdict:
    """Check one file in a separate process; its failure is described in the note.

    Args:
        planted: The file.
        fixed: Whether to compile it with `-D FIXED`.
        options: Further options of `memlab check`.
        timeout_s: The limit of one tool, seconds.
    """
    longest_s = (len(TOOLS) + 1) * timeout_s + 60  # the tools, memlab's check, and their start
    words = [
        *(sys.executable, "-P", "-c", MEMLAB),
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
    """The rows of a verdict: one for each line that one of them names, or one for no findings."""
    same = {"file": verdict.planted.path.name, "twin": verdict.twin}
    document = verdict.document
    if document is None:
        return [_row(same, note=verdict.note)]
    table = [
        _row(
            same,
            tool=pair["tool"],
            lines=" ".join(str(line) for line in pair["lines"] if line),
            planted=_planted(verdict, pair["tool"], pair["lines"]),
            memlab=pair["memlab"] or "",
            compute_sanitizer=pair["compute_sanitizer"] or _missing(document, pair["tool"]),
        )
        for pair in document.get("side_by_side") or _alone(document)
    ]
    if document["verification"]["status"] != "skipped":
        table.append(_row(same, tool="verification", memlab=document["verification"]["status"]))
    sides = ("memlab", "compute_sanitizer") if verdict.has_both else ("memlab",)
    if not document["findings"] and not _theirs(document):
        table.insert(0, _row(same, **dict.fromkeys(sides, _CLEAN)))
    table[0]["note"] = "; ".join(
        filter(None, (verdict.note, *document.get("compute_sanitizer", {}).get("notes", ())))
    )
    return table


def _row(same: Mapping[str, str], **values: str) -> dict[str, str]:
    return {**dict.fromkeys(COLUMNS, ""), **same, **values}


def _planted(verdict: Verdict, tool: str, lines: Sequence[int]) -> str:
    """The kinds of bugs that are planted at these lines for a tool to find."""
    if verdict.fixed:
        return ""
    bugs = verdict.planted.bugs.items()
    return " ".join(kind for (whose, kind), at in bugs if whose == tool and at & {*lines})


def _alone(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The findings of memlab as pairs without compute-sanitizer's."""
    return [
        {
            "tool": finding["tool"],
            "lines": sorted(_lines(finding)),
            "memlab": finding["kind"],
            "compute_sanitizer": None,
        }
        for finding in document["findings"]
    ]


def _missing(document: Mapping[str, Any], tool: str) -> str:
    """The text for a missing finding: empty, or that the tool gave no verdict."""
    report = document.get("compute_sanitizer")
    return "no verdict" if report is not None and tool not in report["tools"] else ""


def _lines(finding: Mapping[str, Any]) -> set[int]:
    places = [finding["at"], finding["other"] if finding["tool"] == "racecheck" else None]
    return {place["line"] or 0 for place in places if place}


def _theirs(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    findings: list[Mapping[str, Any]] = document.get("compute_sanitizer", {}).get("findings", [])
    return findings


# --- The comparison ----------------------------------------------------------------------------


def summary(verdict: Verdict, findings: Callable[[Mapping[str, Any]], list[Any]]) -> str:
    """Summarize the result of memlab or compute-sanitizer on a file in a few words.

    Args:
        verdict: The verdicts on the file.
        findings: Selects the findings of one of them from the document.
    """
    if verdict.document is None:
        return "failed"
    selected = findings(verdict.document)
    tools = " and ".join(dict.fromkeys(finding["tool"] for finding in selected))
    if verdict.fixed:
        return tools or _CLEAN
    places = {(tool, line) for (tool, _), lines in verdict.planted.bugs.items() for line in lines}
    detected = places & {
        (finding["tool"], line) for finding in selected for line in _lines(finding)
    }
    if not places:
        return tools or _CLEAN
    return (
        "found"
        if detected == places
        else f"{len(detected)} of {len(places)} places"
        if detected
        else "-"
    )


def _of_memlab(verdict: Verdict) -> str:
    document = verdict.document or {}
    failed = document.get("verification", {}).get("status") == "failed"
    return summary(verdict, _ours) + (" (verification failed)" if failed else "")


def _of_sanitizer(verdict: Verdict) -> str:
    if not verdict.has_both or verdict.document is None:
        return "did not run"
    tools = verdict.document["compute_sanitizer"]["tools"]
    silent = [tool for tool in TOOLS if tool not in tools]
    result = summary(verdict, lambda document: list(_theirs(document)))
    if verdict.planted.beyond_sanitizer and result == "-":
        result += f" ({verdict.planted.beyond_sanitizer})"
    return f"{result} (no verdict: {', '.join(silent)})" if silent else result


def _ours(document: Mapping[str, Any]) -> list[Any]:
    return list(document["findings"])


def markdown(verdicts: Iterable[Verdict], head: str) -> str:
    """A table with one row per file: the planted bugs, both results, and those of the fixed one."""
    by_name: dict[str, dict[bool, Verdict]] = {}
    for verdict in verdicts:
        by_name.setdefault(verdict.planted.path.name, {})[verdict.fixed] = verdict
    lines = [
        head,
        "",
        "| file | planted | memlab | compute-sanitizer | fixed: memlab | compute-sanitizer |",
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
    """Check all files, print the results, and write them to the folder; return 3 without a GPU."""
    parser = argparse.ArgumentParser(prog="benchmarks.sanitizer")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--timeout", type=float, default=TOOL_TIMEOUT_S, help="seconds per tool")
    options = parser.parse_args(arguments)
    try:
        properties = open_device(next(iter(usable_gpu_names()), "0")).properties
    except DeviceError as error:
        print(f"no comparison: {error}", file=sys.stderr)
        return DeviceError.exit_code
    if sanitizer.find_sanitizer() is None:
        print(f"no compute-sanitizer: {sanitizer.INSTALL_ADVICE}", file=sys.stderr)
        return DeviceError.exit_code

    check_options = ("--device", "0", "--with", "compute-sanitizer", "--quiet")
    cases = [(planted, fixed) for planted in PLANTED for fixed in (False, True)]
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = []
        for verdict in pool.map(lambda case: judge(*case, check_options, options.timeout), cases):
            verdicts.append(verdict)
            text = f"memlab: {_of_memlab(verdict)}; compute-sanitizer: {_of_sanitizer(verdict)}"
            name = verdict.planted.path.name
            print(f"{name}, {verdict.twin}: {text}", file=sys.stderr, flush=True)
    if not any(verdict.has_both for verdict in verdicts):
        print(f"compute-sanitizer never ran: {verdicts[0].note}", file=sys.stderr)
        return DeviceError.exit_code

    release = next(
        verdict.document for verdict in verdicts if verdict.has_both and verdict.document
    )
    head = (
        f"{gpu_head(properties.name)}, "
        f"compute-sanitizer {release['compute_sanitizer']['version']}, memlab {version('memlab')}"
    )
    text = markdown(verdicts, head)
    print(text)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        name = prefix(properties.name)
        (options.folder / f"{name}-check.md").write_text(text)
        with (options.folder / f"{name}-check.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for verdict in verdicts:
                writer.writerows(rows(verdict))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
