"""Judged gates for other tools: JUnit's XML for test reports, SARIF for code hosts.

SARIF is OASIS's Static Analysis Results Interchange Format 2.1.0; GitHub shows its results at
their lines, if these have a path from the root of the repository. JUnit's XML follows the schema of
Jenkins' xUnit plugin, which GitLab, Jenkins and GitHub's actions read.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree

from memlab.kernels.catalog import CATALOG
from memlab.roofline.comparison.lines import grown_lines, line_counter
from memlab.roofline.comparison.wording import run_title
from memlab.text import printable
from memlab.version import memlab_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlab.roofline.comparison.records import Comparison, ConditionResult, PairComparison
    from memlab.roofline.run import Run

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MAX_LINES_PER_CONDITION = 10
"""The most source lines that one condition reports, those that grew most."""

WRONG_OUTPUT = "verification"

REPOSITORY, PACKAGES = "%SRCROOT%", "SITE_PACKAGES"
BASES = {
    REPOSITORY: "The root of the repository",
    PACKAGES: "The folder that holds the package memlab, whose kernels are in no user's repository",
}
"""What the paths of results are relative to. The folders themselves differ between machines."""


def junit_xml(comparison: Comparison) -> str:
    """Write the judged conditions as JUnit's XML: a test case for each, and for each output."""
    suite = ElementTree.Element("testsuite", name="memlab compare")
    failures = errors = 0
    for pair in comparison.pairs:
        case = _case(suite, run_title(pair.b), "output verified")
        verification = pair.b.measurement.verification
        if verification.status == "failed":
            failures += 1
            text = printable(verification.worst or "the output is wrong")
            ElementTree.SubElement(case, "failure", message=text)
        elif verification.status == "skipped":
            ElementTree.SubElement(case, "skipped")
    for result in comparison.conditions:
        case = _case(suite, result.subject, result.condition)
        if result.failed:
            held = result.status == "held"
            failures, errors = failures + held, errors + (not held)
            kind = "failure" if held else "error"
            ElementTree.SubElement(case, kind, message=printable(result.text), type=result.name)
    suite.set("tests", str(len(comparison.pairs) + len(comparison.conditions)))
    suite.set("failures", str(failures))
    suite.set("errors", str(errors))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _case(suite: ElementTree.Element, subject: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite, "testcase", classname=printable(subject), name=printable(name)
    )


def sarif_document(comparison: Comparison) -> dict[str, Any]:
    """Write the failed conditions as SARIF 2.1.0.

    A condition whose figure lines have (`global_load_sectors`) gives a result at each line of B
    that grew; another one gives a result at the kernel's first line, and a launch of a baseline
    that is gone or fails gives one at the first line of its file.
    """
    results = list(_results(comparison))
    rules = dict.fromkeys(result["ruleId"] for result in results)
    for result in results:
        result["ruleIndex"] = list(rules).index(result["ruleId"])
    driver = {
        "name": "memlab",
        "semanticVersion": memlab_version(),
        "rules": [_rule(rule) for rule in rules],
    }
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "originalUriBaseIds": {
                    name: {"description": {"text": text}} for name, text in BASES.items()
                },
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }


def _rule(rule: str) -> dict[str, Any]:
    name = rule.removeprefix("memlab/")
    text = (
        "The kernel's output is wrong"
        if name == WRONG_OUTPUT
        else f"A limit on {name} is exceeded; 'memlab explain {name}' tells what it counts"
    )
    return {"id": rule, "name": name, "shortDescription": {"text": text}}


def _results(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for pair in comparison.pairs:
        verification = pair.b.measurement.verification
        if verification.status == "failed":
            text = f"{run_title(pair.b)}: the output is wrong. {verification.worst}"
            yield _result(pair.b, WRONG_OUTPUT, text, _first_line(pair.b))
    for place, pair in enumerate(comparison.pairs):
        failed = [each for each in comparison.conditions if each.failed and each.pair == place]
        yield from _condition_results(pair, failed)
    launches = {run_title(run): run for run in comparison.only_a}
    for each in comparison.conditions:
        if each.failed and each.pair is None and each.subject in launches:
            yield _result(launches[each.subject], each.name, _text(each), 1, each)


def _condition_results(
    pair: PairComparison, failed: Sequence[ConditionResult]
) -> Iterator[dict[str, Any]]:
    """Give a result for each line that grew, however many conditions it breaks, and the rest."""
    at_lines: dict[tuple[int, str], list[ConditionResult]] = {}
    elsewhere = []
    for result in failed:
        counter = line_counter(result.name) or ""
        lines = grown_lines(pair.lines, result.name)[:MAX_LINES_PER_CONDITION]
        for line in lines:
            at_lines.setdefault((line.b.line if line.b else 0, counter), []).append(result)
        if not lines:
            elsewhere.append(result)
    changes = {line.b.line: line for line in pair.lines if line.b is not None}
    for (number, counter), results in at_lines.items():
        a, b = changes[number].counters[counter]
        grown = f"{counter.replace('_', ' ')} of this line: {a:,} -> {b:,}. "
        texts = "; ".join(f"{each.condition}: {each.text}" for each in results)
        yield _result(pair.b, results[0].name, f"{grown}{results[0].subject}: {texts}", number)
    for result in elsewhere:
        yield _result(pair.b, result.name, _text(result), _first_line(pair.b), result)


def _text(result: ConditionResult) -> str:
    return f"{result.subject}: {result.condition}: {result.text}"


def _first_line(run: Run) -> int:
    return next((line.line for line in run.measurement.lines if line.line > 0), 1)


def _result(
    run: Run, name: str, text: str, line: int, condition: ConditionResult | None = None
) -> dict[str, Any]:
    measurement = run.measurement
    not_judged = condition is not None and condition.status == "not judged"
    # The same finding at a line that moved has the same fingerprint.
    identity = "\n".join((name, run_title(run), _text_of(run, line)))
    return {
        "ruleId": f"memlab/{name}",
        "level": "warning" if not_judged else "error",
        "message": {"text": printable(text)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact_location(run),
                    "region": {"startLine": line},
                },
                "logicalLocations": [{"name": printable(measurement.kernel), "kind": "function"}],
            }
        ],
        "partialFingerprints": {
            "memlab/v1": hashlib.sha256(
                identity.encode("utf-8", errors="backslashreplace")
            ).hexdigest()
        },
    }


def _text_of(run: Run, line: int) -> str:
    return next((each.text for each in run.measurement.lines if each.line == line), "")


def _artifact_location(run: Run) -> dict[str, str]:
    """Locate the source of a run.

    SARIF 2.1.0, 3.4: a path without `.` and `..`, relative to a base, or an absolute URI without
    one. Code hosts take relative paths from the root of the repository.
    """
    source = run.measurement.code.source_name or run.measurement.kernel
    if run.measurement.kernel in CATALOG:
        return {"uri": _quoted(f"memlab/kernels/{source}"), "uriBaseId": PACKAGES}
    path = Path(os.path.abspath(source))  # noqa: PTH100 - a link counts by its own name
    root = _repository_root()
    if path.is_relative_to(root):
        return {"uri": _quoted(path.relative_to(root).as_posix()), "uriBaseId": REPOSITORY}
    return {"uri": f"file://{_quoted(path.as_posix())}"}


def _repository_root() -> Path:
    """The folder of the repository around the current folder; this folder where there is none."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _quoted(path: str) -> str:
    return quote(path, errors="replace")
