"""A listing of machine code as data: the JSON document, and one CSV row per instruction."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from memlab.roofline.documents.codec import encode

if TYPE_CHECKING:
    from memlab.device.machine_code.listing import ListedInstruction, MachineListing

SCHEMA_VERSION = 1


def sass_document(listing: MachineListing) -> dict[str, Any]:
    """A listing as a JSON document, with all instructions."""
    document: dict[str, Any] = encode(
        {
            "schema_version": SCHEMA_VERSION,
            "kernel": listing.kernel,
            "parameters": listing.parameters,
            "device": listing.device,
            "coverage": listing.coverage,
            "source_name": listing.source_name,
            "control_bits_known": listing.has_control,
            "counters": listing.counters,
            "instructions": [_row(listing, step) for step in listing.instructions],
        }
    )
    return document


def sass_csv(listing: MachineListing) -> str:
    """A listing as CSV text: a header, then one row per instruction."""
    text = io.StringIO()
    rows = [_row(listing, step) for step in listing.instructions]
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"waits": " ".join(map(str, row["waits"]))} for row in rows)
    return text.getvalue()


def _row(listing: MachineListing, step: ListedInstruction) -> dict[str, Any]:
    return {
        "address": step.address,
        "machine_code": step.text,
        "pipe": step.pipe,
        "stall_clocks": step.stall,
        "waits": step.waits,
        "block": step.block,
        "target": step.target,
        "warp_executions": step.warps,
        "thread_executions": step.threads,
        "ptx_line": step.ptx_line,
        "ptx": listing.ptx_text(step.ptx_line),
        "source_line": step.source_line,
        "source": listing.source_text(step.source_line),
    }
