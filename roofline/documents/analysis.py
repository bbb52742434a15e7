"""An analysis as data: the JSON document, and one row per source line for CSV."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from memlab.device.measurement import flop_by_pipe, integer_op_by_pipe
from memlab.device.warp_stalls import PIPE_NAMES, STALL_REASONS
from memlab.roofline.documents.codec import encode

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
    "iop",
    "thread_instructions",
    "warp_instructions",
    "lanes_off",
)
"""The columns of the listing, in JSON and CSV."""

ACCESS_COLUMNS = LINE_COLUMNS[2:]
"""The columns that one access of a line has too, in JSON."""

PIPE_COLUMNS = {pipe: f"instructions_{pipe}" for pipe in PIPE_NAMES}
STALL_COLUMNS = {reason: f"stall_{reason}" for reason in STALL_REASONS}
"""The columns of a line's machine code in CSV: instructions of warps by pipe, and the shares of
the warps' time by reason. JSON has them as two objects, `instructions_by_pipe` and `stalls`."""


def analysis_document(analysis: Analysis) -> dict[str, Any]:
    """Give an analysis as a JSON document in base units, with the unit in the key."""
    document: dict[str, Any] = encode(
        {
            "schema_version": SCHEMA_VERSION,
            "kernel": analysis.kernel,
            "parameters": analysis.parameters,
            "device": analysis.device,
            "launch": {"grid": analysis.grid, "block": analysis.block},
            "resources": analysis.resources,
            "coverage": analysis.coverage,
            "flop": analysis.flop,
            "flop_executed": sum(flop_by_pipe(analysis.counters).values()),
            "iop_executed": sum(integer_op_by_pipe(analysis.counters).values()),
            "compute_to_global_memory_access_ratio": _ratio_document(analysis.ratio),
            "intensity_flop_per_byte": analysis.intensity_flop_per_byte,
            "bytes": analysis.bytes_moved,
            "counters": analysis.counters,
            "stall_clocks_per_instruction": dict(analysis.stalls),
            "boundary": _boundary_document(analysis.boundary),
            "lines": [
                line_row(line)
                | _machine_objects(line)
                | {"accesses": [_access_row(access) for access in line.accesses]}
                for line in analysis.listing
            ],
            "verification": analysis.verification,
        }
    )
    return document


def lines_csv(analysis: Analysis) -> str:
    """Give the listing as CSV text, one row per source line; unknown values are empty."""
    text = io.StringIO()
    columns = (*LINE_COLUMNS, *PIPE_COLUMNS.values(), *STALL_COLUMNS.values())
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line_row(line) | _machine_columns(line) for line in analysis.listing)
    return text.getvalue()


def line_row(line: ListedLine) -> dict[str, Any]:
    """Give a line of the listing: a value for each of `LINE_COLUMNS`, None where not executed."""
    return {"line": line.number, "text": line.text, **_counter_columns(line)}


def _machine_objects(line: ListedLine) -> dict[str, Any]:
    machine = line.machine
    return {
        "instructions_by_pipe": None if machine is None else dict(machine.instructions),
        "stalls": None if machine is None else dict(machine.stalls),
    }


def _machine_columns(line: ListedLine) -> dict[str, Any]:
    if line.machine is None:
        return {}
    return {PIPE_COLUMNS[pipe]: count for pipe, count in line.machine.instructions.items()} | {
        STALL_COLUMNS[reason]: share for reason, share in line.machine.stalls.items()
    }


def _access_row(access: ListedAccess) -> dict[str, Any]:
    named = {"space": access.space, "direction": access.direction, "array": access.array}
    return named | _counter_columns(access)


def _counter_columns(item: ListingItem) -> dict[str, Any]:
    """Give a value for each of `ACCESS_COLUMNS`."""
    values: dict[str, Any] = {}
    if item.counters is not None:
        values = item.counters.by_name() | {
            "sectors_per_request": item.sectors_per_request,
            "used_bytes": item.counters.global_used_bytes,
            "bus_utilisation": item.bus_utilisation,
            "passes_per_request": item.passes_per_request,
            "lanes_off": item.lanes_off,
        }
    return {name: values.get(name) for name in ACCESS_COLUMNS} | {"heat": item.heat}


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
        "integer_op_per_byte": ratio.integer_op_per_byte,
        "integer_pipe": ratio.integer_pipe or None,
        "peak_integer_op_per_s": ratio.peak_integer_op_per_s,
        "integer_share_of_memory_time": ratio.integer_share,
    }


def _boundary_document(cost: BoundaryCost | None) -> dict[str, Any] | None:
    if cost is None:
        return None

    def neighbour(case: BoundaryCase | None) -> dict[str, Any] | None:
        if case is None:
            return None
        values: dict[str, Any] = encode(case)
        return values | {
            "wasted_lanes_fraction": cost.wasted_lanes(case),
            "wasted_sectors_fraction": cost.wasted_sectors(case),
        }

    return {"case": cost.case, "lower": neighbour(cost.lower), "upper": neighbour(cost.upper)}
