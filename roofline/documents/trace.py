"""The JSON document of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.device.array_element import Element
from memlab.device.tracing.records import (
    ArrayPart,
    ElementAccess,
    Operation,
    thread_phases,
    value_name,
)
from memlab.kernels.launch import NO_CLUSTER, Scalar
from memlab.roofline.documents.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.tracing.records import Phase, Step, Trace, TracedValue

SCHEMA_VERSION = 1


def trace_document(trace: Trace) -> dict[str, Any]:
    """A trace as a JSON document, with all its steps."""
    phases = {thread.thread: thread_phases(thread, trace.phases) for thread in trace.threads}
    document: dict[str, Any] = encode(
        {
            "schema_version": SCHEMA_VERSION,
            **_fields(trace, "kernel", "parameters", "device", "grid", "block", "block_index"),
            **(_fields(trace, "cluster", "rank") if trace.cluster != NO_CLUSTER else {}),
            "thread": trace.followed.thread,
            "barriers": trace.followed.barriers,
            "steps": [_step_document(step) for step in trace.followed.steps],
            "phases": [
                {"thread": thread, "phases": [_phase_document(phase) for phase in its]}
                for thread, its in phases.items()
            ],
            "arrays": [
                {
                    "array": use.array,
                    "shape": use.shape,
                    "block_reads": _histogram(use.block_reads),
                    "grid_reads": _histogram(use.grid_reads),
                    "block_elements_written": len(use.block_written),
                }
                for use in trace.arrays
            ],
            "shared_reads_per_store": trace.shared_reuse,
            "staged_share": trace.staged_share,
        }
    )
    return document


def _step_document(step: Step) -> dict[str, Any]:
    place = {"line": step.line, "phase": step.phase or None}
    if isinstance(step, Operation):
        operands = [_value_document(operand) for operand in step.operands]
        return {"kind": step.opcode, **place, "operands": operands, "text": step.flat}
    document = {"kind": step.kind, **place, **_value_document(step.element)}
    if step.kind != "load":
        document["source"] = _value_document(step.source)
    if step.kind == "atomic":
        document["operation"] = step.operation
    return document


def _value_document(value: TracedValue) -> Any:
    if isinstance(value, Element):
        fields = _fields(value, "space", "array", "index", "subscripts", "name")
        return fields if value.rank is None else {**fields, "rank": value.rank}
    if isinstance(value, Scalar):
        return {"argument": value.name, "value": value.value}
    if isinstance(value, ArrayPart):
        ends = _fields(value, "array", "first", "last")
        return {**ends, "elements": value.count, "name": value.name}
    return value


def _fields(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _phase_document(phase: Phase) -> dict[str, Any]:
    return {
        "phase": phase.number,
        "staged": [
            {"to": access.element.name, "from": value_name(access.source), "line": access.line}
            for access in phase.staged
        ],
        "operations": [operation.text for operation in phase.operations],
        "moved": [step.text for step in phase.used if isinstance(step, ElementAccess)],
    }


def _histogram(reads: Mapping[int, int] | None) -> list[dict[str, int]] | None:
    if reads is None:
        return None
    return [{"reads": times, "elements": count} for times, count in sorted(reads.items())]
