"""A trace as data: the JSON document, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.device.array_element import Element
from memlab.device.tracing.records import (
    ArrayPart,
    ElementAccess,
    Operation,
    ScalarArgument,
    thread_phases,
    value_name,
)
from memlab.roofline.documents.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.tracing.records import ArrayUse, Phase, Trace, TracedValue

SCHEMA_VERSION = 1


def trace_document(trace: Trace) -> dict[str, Any]:
    """Give a trace as a JSON document, whole."""
    document: dict[str, Any] = encode(
        {
            "schema_version": SCHEMA_VERSION,
            "kernel": trace.kernel,
            "parameters": dict(trace.parameters),
            "device": trace.device,
            "grid": trace.grid,
            "block": trace.block,
            "block_index": trace.block_index,
            "thread": trace.followed.thread,
            "barriers": trace.followed.barriers,
            "steps": [_step_document(each) for each in trace.followed.steps],
            "phases": [
                {
                    "thread": thread.thread,
                    "phases": [
                        _phase_document(each) for each in thread_phases(thread, trace.phases)
                    ],
                }
                for thread in trace.threads
            ],
            "arrays": [_use_document(each) for each in trace.arrays],
            "shared_reads_per_store": trace.shared_reuse,
            "staged_share": trace.staged_share,
        }
    )
    return document


def _step_document(step: ElementAccess | Operation) -> dict[str, Any]:
    if isinstance(step, Operation):
        return {
            "kind": step.opcode,
            "line": step.line,
            "phase": step.phase or None,
            "operands": [_value_document(each) for each in step.operands],
            "text": step.flat,
        }
    return {
        "kind": step.kind,
        "line": step.line,
        "phase": step.phase or None,
        **_element_document(step.element),
        **({} if step.kind == "load" else {"source": _value_document(step.source)}),
        **({"operation": step.operation} if step.kind == "atomic" else {}),
    }


def _element_document(element: Element) -> dict[str, Any]:
    return {
        "space": element.space,
        "array": element.array,
        "index": element.index,
        "subscripts": list(element.subscripts),
        "name": element.name,
    }


def _value_document(value: TracedValue) -> Any:
    if isinstance(value, ScalarArgument):
        return {"argument": value.name, "value": value.value}
    if isinstance(value, ArrayPart):
        return {
            "array": value.array,
            "first": list(value.first),
            "last": list(value.last),
            "elements": value.count,
            "name": value.name,
        }
    return _element_document(value) if isinstance(value, Element) else value


def _phase_document(phase: Phase) -> dict[str, Any]:
    return {
        "phase": phase.number,
        "staged": [
            {"to": each.element.name, "from": value_name(each.source), "line": each.line}
            for each in phase.staged
        ],
        "operations": [each.text for each in phase.operations],
        "moved": [each.text for each in phase.used if isinstance(each, ElementAccess)],
    }


def _use_document(use: ArrayUse) -> dict[str, Any]:
    def histogram(reads: Mapping[int, int] | None) -> list[dict[str, int]] | None:
        if reads is None:
            return None
        return [{"reads": times, "elements": count} for times, count in sorted(reads.items())]

    return {
        "array": use.array,
        "shape": list(use.shape),
        "block_reads": histogram(use.block_reads),
        "grid_reads": histogram(use.grid_reads),
        "block_elements_written": len(use.block_written),
    }
