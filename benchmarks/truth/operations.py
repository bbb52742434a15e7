"""Counts of arithmetic that both Nsight Compute and the emulator give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memlab.device.emulation.device import Emulation
from memlab.device.measurement import integer_op_by_pipe

_THREADS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_PIPE = "sm__inst_executed_pipe_{}.sum"


@dataclass(frozen=True)
class Operation:
    """A count that both sides have.

    Attributes:
        title: Its title in a table.
        metrics: The weights of Nsight Compute's metrics in it.
        emulated: Its value from an emulation.
    """

    title: str
    metrics: Mapping[str, int]
    emulated: Callable[[Emulation], int]


def _of_pipe(*pipes: str) -> Callable[[Emulation], int]:
    return lambda emulation: sum(emulation.instructions.by_pipe.get(pipe, 0) for pipe in pipes)


OPERATIONS: Mapping[str, Operation] = {
    "iop": Operation(
        "integer op.",
        {_THREADS.format("integer"): 1},
        lambda emulation: sum(integer_op_by_pipe(emulation.counters).values()),
    ),
    # Each instruction counts once, and holds two numbers, of either format.
    "flop_16_bit": Operation(
        "16-bit FLOPs",
        {_THREADS.format("hfma"): 4, _THREADS.format("hadd"): 2, _THREADS.format("hmul"): 2},
        lambda emulation: emulation.counters.flop_fp16 + emulation.counters.flop_bf16,
    ),
    "instructions_alu": Operation("ALU", {_PIPE.format("alu"): 1}, _of_pipe("alu")),
    # The FMA pipe executes the packed 16-bit instructions, too.
    "instructions_fma": Operation("FMA", {_PIPE.format("fma"): 1}, _of_pipe("fma", "fp16")),
    "instructions_xu": Operation("XU", {_PIPE.format("xu"): 1}, _of_pipe("xu")),
}
"""The counts by names that `Counters` does not have."""


def required_metrics() -> tuple[str, ...]:
    """The metrics that `OPERATIONS` needs."""
    return tuple(metric for operation in OPERATIONS.values() for metric in operation.metrics)


def measured_operations(metrics: Mapping[str, float]) -> dict[str, float]:
    """The counts by Nsight Compute; those whose metrics were not measured are left out."""
    return {
        name: sum(weight * metrics[metric] for metric, weight in operation.metrics.items())
        for name, operation in OPERATIONS.items()
        if all(metric in metrics for metric in operation.metrics)
    }


def emulated_operations(emulation: Emulation) -> dict[str, float]:
    """The counts of the emulated device."""
    return {name: operation.emulated(emulation) for name, operation in OPERATIONS.items()}
