"""The reference of all rows of the instruction table."""

from tests.reference import floating_rows, integer_rows, warp_rows  # noqa: F401 - they add rows
from tests.reference.rows import ROWS, Function


def reference(opcode: str) -> Function:
    """What an opcode computes, in NumPy: see `rows.op`."""
    return ROWS[opcode]
