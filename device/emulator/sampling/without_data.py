"""Leaves out of a program the data that it computes and copies, which decide nothing that counts.

Where neither branches nor addresses depend on data (`data_dependence`), the counts of a program are
those of its accesses alone. What is left out here is what takes most of the time of a matrix
product: the products of tensor cores, the loads of their factors, other arithmetic on data, and the
bytes that tensor copies move. All other instructions remain, with their addresses: the accesses are
counted by the same code, and the barriers open as they do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access
from memlab.device.emulator.isa.asynchronous.warpgroup import is_factor_load, is_product
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.emulator.sampling.data_dependence import decision_sources, depends_on_data

LEFT_OUT = Row("left out", "nothing")
"""The row of an instruction that is counted, but does nothing."""


def leave_out(step: DecodedInstruction, *, guarded: bool) -> DecodedInstruction:
    """An instruction that does nothing; where it is not `guarded`, by all lanes."""
    guard = step.instruction.guard if guarded else None
    return DecodedInstruction(replace(step.instruction, operands=(), guard=guard), LEFT_OUT)


@lru_cache(maxsize=32)
def without_data(program: Program) -> Program | None:
    """The program without its data: the counts of all its accesses are the same.

    Returns:
        None where data decides something, and for programs without products of warpgroups and bulk
        copies: little of what these do can be left out.
    """
    is_costly = any(is_product(s.row.opcode) or is_bulk_access(s.row) for s in program.steps)
    if not is_costly:
        return None
    return _leave_out_data(program, "without data", lambda row: row.kind in ("lanes", "warp"))


@lru_cache(maxsize=32)
def without_products(program: Program) -> Program | None:
    """The program without the products of its warps (`mma.sync`), or `without_data`.

    The lines that warps access are the same, and so are their runs (`machine.line_trace`): where
    lanes wait for others of their warp, they still do.

    Returns:
        None where data decides something, and for programs without such products.
    """
    if any(map(_multiplies, (step.row for step in program.steps))):
        return _leave_out_data(
            program, "without products", lambda row: row.kind == "lanes" or _multiplies(row)
        )
    return without_data(program)


def _multiplies(row: Row) -> bool:
    return row.opcode.startswith("mma.")


def _leave_out_data(
    program: Program, what: str, is_left_out: Callable[[Row], bool]
) -> Program | None:
    """Leave out the loads of factors, and of some rows those that decide nothing.

    Args:
        program: The program.
        what: Names the result, for the cache of compilations.
        is_left_out: The rows.
    """
    if depends_on_data(program):
        return None
    rest = tuple(
        leave_out(step, guarded=True) if is_factor_load(step.row.opcode) else step
        for step in program.steps
    )
    deciding, spaces = decision_sources(replace(program, steps=rest))
    return replace(
        program,
        steps=tuple(
            leave_out(step, guarded=True)
            if is_left_out(step.row) and deciding.isdisjoint(step.registers_written)
            else step
            for step in rest
        ),
        digest=f"{program.digest} {what}",
        moves_boxes="shared" in spaces,
    )
