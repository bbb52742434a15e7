"""An analysis as data: the JSON document, and a row a source line for CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memlab.device.measurement import flop_by_pipe
from memlab.device.properties import version_text
from memlab.roofline.documents.runs import to_plain_json

if TYPE_CHECKING:
    from memlab.roofline.analysis.analysis import AccessRatio, Analysis
    from memlab.roofline.analysis.boundary import BoundaryCase, BoundaryCost
    from memlab.roofline.analysis.listing import ListedAccess, ListedLine, ListingItem

SCHEMA_VERSION = 1

LINE_COLUMNS = (
    "line",
    "text",
    "heat",
    "global_requests",
    "global_sectors",
    "sectors_per_request",
    "requested_bytes",
    "used_bytes",
    "bus_utilisation",
    "shared_instructions",
    "shared_wavefronts",
    "shared_excessive_wavefronts",
    "local_sectors",
    "constant_requests",
    "constant_passes",
    "passes_per_request",
    "flop",
    "thread_instructions",
    "warp_instructions",
    "lanes_off",
)
"""The columns of the listing, in JSON and CSV."""

ACCESS_COLUMNS = LINE_COLUMNS[2:]
"""What of them is said of one access of a line too, in JSON."""


def analysis_document(analysis: Analysis) -> dict[str, Any]:
    """Give an analysis as a JSON document in base units, with the unit in the key."""
    device = analysis.device
    found: dict[str, Any] = to_plain_json(
        {
            "schema_version": SCHEMA_VERSION,
            "kernel": analysis.kernel,
            "parameters": dict(analysis.parameters),
            "device": asdict(device)
            | {"compute_capability": version_text(device.compute_capability)},
            "launch": {"grid": list(analysis.grid), "block": list(analysis.block)},
            "resources": asdict(analysis.resources),
            "coverage": asdict(analysis.coverage),
            "flop": analysis.flop,
            "flop_executed": sum(flop_by_pipe(analysis.counters).values()),
            "compute_to_global_memory_access_ratio": _ratio_document(analysis.ratio),
            "intensity_flop_per_byte": analysis.intensity_flop_per_byte,
            "bytes": analysis.bytes_moved,
            "counters": asdict(analysis.counters),
            "boundary": None
            if analysis.boundary is None
            else _boundary_document(analysis.boundary),
            "lines": [
                line_row(each) | {"accesses": [_access_row(access) for access in each.accesses]}
                for each in analysis.listing
            ],
            "verification": asdict(analysis.verification),
        }
    )
    return found


def lines_csv(analysis: Analysis) -> str:
    """Give the listing as CSV text, a row a source line; what was not counted is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, LINE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line_row(each) for each in analysis.listing)
    return text.getvalue()


def line_row(line: ListedLine) -> dict[str, Any]:
    """Give a line of the listing: a value for each of `LINE_COLUMNS`, None where not executed."""
    return {"line": line.number, "text": line.text, **_counter_columns(line)}


def _access_row(access: ListedAccess) -> dict[str, Any]:
    named = {"space": access.space, "direction": access.direction, "array": access.array}
    return named | _counter_columns(access)


def _counter_columns(line: ListingItem) -> dict[str, Any]:
    """Give a value for each of `ACCESS_COLUMNS`."""
    counted = line.counters
    if counted is None:
        return dict.fromkeys(ACCESS_COLUMNS) | {"heat": line.heat}
    return {
        "heat": line.heat,
        "global_requests": counted.global_requests,
        "global_sectors": counted.global_sectors,
        "sectors_per_request": line.sectors_per_request,
        "requested_bytes": counted.requested_bytes,
        "used_bytes": counted.global_used_bytes,
        "bus_utilisation": line.bus_utilisation,
        "shared_instructions": counted.shared_instructions,
        "shared_wavefronts": counted.shared_wavefronts,
        "shared_excessive_wavefronts": counted.shared_excessive_wavefronts,
        "local_sectors": counted.local_sectors,
        "constant_requests": counted.constant_requests,
        "constant_passes": counted.constant_passes,
        "passes_per_request": line.passes_per_request,
        "flop": counted.flop,
        "thread_instructions": counted.thread_instructions,
        "warp_instructions": counted.warp_instructions,
        "lanes_off": line.lanes_off,
    }


def _ratio_document(ratio: AccessRatio | None) -> dict[str, Any] | None:
    if ratio is None:
        return None
    return {
        "flop_per_byte": ratio.flop_per_byte,
        "flop_per_access": ratio.flop_per_access,
        "access_bytes": ratio.value_bytes,
        "region": "loops" if ratio.loops else "whole program",
        "pipe": ratio.pipe,
        "bandwidth_bytes_per_s": ratio.bandwidth_bytes_per_s,
        "peak_flop_per_s": ratio.peak_flop_per_s,
        "bound_flop_per_s": ratio.bound_flop_per_s,
        "fraction_of_peak": ratio.fraction_of_peak,
        "needed_flop_per_access": ratio.needed_flop_per_access,
    }


def _boundary_document(cost: BoundaryCost) -> dict[str, Any]:
    def neighbour(case: BoundaryCase | None) -> dict[str, Any] | None:
        if case is None:
            return None
        return asdict(case) | {
            "wasted_lanes_fraction": cost.wasted_lanes(case),
            "wasted_sectors_fraction": cost.wasted_sectors(case),
        }

    return {
        "case": asdict(cost.case),
        "lower": neighbour(cost.lower),
        "upper": neighbour(cost.upper),
    }
