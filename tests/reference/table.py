"""The reference of all rows of the instruction table."""

import tests.reference.conversion_rows
import tests.reference.floating_rows
import tests.reference.integer_rows
import tests.reference.tensor_rows
import tests.reference.warp_rows  # noqa: F401 - each adds its rows
from tests.reference.rows import ROWS, Function


def reference(opcode: str) -> Function:
    """What an opcode computes, in NumPy: see `rows.op`."""
    return ROWS[opcode]
