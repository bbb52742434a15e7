"""What a check found, as data: the JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memlab.device.properties import version_text
from memlab.roofline.documents.runs import to_plain_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.checking.findings import CheckFinding, CheckReport, SourceLocation
    from memlab.device.nvidia_tools.sanitizer import FindingPair, SanitizerReport

SCHEMA_VERSION = 1


def check_document(
    report: CheckReport, beside: SanitizerReport | None = None, pairs: Sequence[FindingPair] = ()
) -> dict[str, Any]:
    """Give a report as a JSON document in base units, with the unit in the key.

    Args:
        report: What memlab found.
        beside: What Compute Sanitizer found of the same launch.
        pairs: Both, matched; given with `beside`.
    """
    device = report.device
    shown: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kernel": report.kernel,
        "parameters": dict(report.parameters),
        "source_name": report.source_name,
        "device": asdict(device) | {"compute_capability": version_text(device.compute_capability)},
        "launch": {"grid": list(report.grid), "block": list(report.block)},
        "tools": list(report.tools),
        "coverage": asdict(report.coverage),
        "findings": [_finding_document(each) for each in report.findings],
        "verification": asdict(report.verification),
    }
    if beside is not None:
        shown["compute_sanitizer"] = {
            "version": beside.version,
            "tools": list(beside.tools),
            "findings": [_finding_document(each) for each in beside.findings],
            "notes": list(beside.notes),
        }
        shown["side_by_side"] = [_pair_document(each) for each in pairs]
    found: dict[str, Any] = to_plain_json(shown)
    return found


def _finding_document(finding: CheckFinding) -> dict[str, Any]:
    return {
        "tool": finding.tool,
        "kind": finding.kind,
        "message": finding.message,
        "space": finding.space or None,
        "element": finding.element or None,
        "at": _place_document(finding.at),
        "other": None if finding.other is None else _place_document(finding.other),
        "count": finding.count,
    }


def _place_document(place: SourceLocation) -> dict[str, Any]:
    return {
        "line": place.line or None,
        "text": place.text,
        "block": None if place.block is None else list(place.block),
        "thread": None if place.thread is None else list(place.thread),
    }


def _pair_document(pair: FindingPair) -> dict[str, Any]:
    return {
        "tool": pair.tool,
        "lines": list(pair.lines),
        "memlab": None if pair.memlab is None else pair.memlab.kind,
        "compute_sanitizer": None if pair.sanitizer is None else pair.sanitizer.kind,
    }
