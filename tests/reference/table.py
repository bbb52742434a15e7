"""The reference of all rows of the instruction table."""

from tests.reference import warp_rows  # noqa: F401 - it adds its rows
from tests.reference.rows import ROWS, Function


def reference(opcode: str) -> Function:
    """What an opcode computes, in NumPy: see `rows.op`."""
    return ROWS[opcode]
