"""The findings of a check as data: the JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.roofline.documents.codec import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.checking.findings import CheckFinding, CheckReport, SourceLocation
    from memlab.device.nvidia_tools.sanitizer import FindingPair, SanitizerReport

SCHEMA_VERSION = 1


def check_document(
    report: CheckReport,
    sanitizer: SanitizerReport | None = None,
    pairs: Sequence[FindingPair] = (),
) -> dict[str, Any]:
    """Give a report as a JSON document in base units, with the unit in the key.

    Args:
        report: memlab's findings.
        sanitizer: Compute Sanitizer's findings of the same launch.
        pairs: The findings of both, matched; only with `sanitizer`.
    """
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kernel": report.kernel,
        "parameters": report.parameters,
        "source_name": report.source_name,
        "device": report.device,
        "launch": {"grid": report.grid, "block": report.block},
        "tools": report.tools,
        "coverage": report.coverage,
        "findings": [_finding_document(finding) for finding in report.findings],
        "verification": report.verification,
        "notes": report.notes,
    }
    if sanitizer is not None:
        document["compute_sanitizer"] = {
            "version": sanitizer.version,
            "tools": sanitizer.tools,
            "findings": [_finding_document(finding) for finding in sanitizer.findings],
            "notes": sanitizer.notes,
        }
        document["side_by_side"] = [
            {
                "tool": pair.tool,
                "lines": pair.lines,
                "memlab": pair.memlab and pair.memlab.kind,
                "compute_sanitizer": pair.sanitizer and pair.sanitizer.kind,
            }
            for pair in pairs
        ]
    encoded: dict[str, Any] = encode(document)
    return encoded


def _finding_document(finding: CheckFinding) -> dict[str, Any]:
    values: dict[str, Any] = encode(finding)
    return values | {
        "space": finding.space or None,
        "element": finding.element or None,
        "at": _location_document(finding.at),
        "other": finding.other and _location_document(finding.other),
    }


def _location_document(location: SourceLocation) -> dict[str, Any]:
    values: dict[str, Any] = encode(location)
    return values | {"line": location.line or None}
