"""A trace as data: the JSON document, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.device.tracing.records import (
    Access,
    Argument,
    Element,
    Operation,
    Part,
    phases,
    value_name,
)
from memlab.roofline.documents.runs import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.tracing.records import ArrayUse, Phase, Trace, Value

SCHEMA_VERSION = 1


def document(trace: Trace) -> dict[str, Any]:
    """Give a trace as a JSON document, whole."""
    found: dict[str, Any] = plain(
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
                    "phases": [_phase_document(each) for each in phases(thread, trace.phases)],
                }
                for thread in trace.threads
            ],
            "arrays": [_use_document(each) for each in trace.arrays],
            "shared_reads_per_store": trace.shared_reuse,
            "staged_share": trace.staged_share,
        }
    )
    return found


def _step_document(step: Access | Operation) -> dict[str, Any]:
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


def _value_document(value: Value) -> Any:
    if isinstance(value, Argument):
        return {"argument": value.name, "value": value.value}
    if isinstance(value, Part):
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
        "moved": [each.text for each in phase.used if isinstance(each, Access)],
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
