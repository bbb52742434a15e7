"""The rows of the reference: what each opcode computes, in NumPy."""

import itertools
import re
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]

ROWS: dict[str, Function] = {}
"""From an opcode of the instruction table to its meaning, a function of arrays."""


def op(
    pattern: str, function: Function | None = None, *, make: Callable[..., Function] | None = None
) -> None:
    """Add a row for each expansion of the braces in a pattern, as `isa.rows.op` does.

    Args:
        pattern: The opcode with `{a,b}` where it varies.
        function: Its function of arrays. Of kind `lanes` and `warp` as `isa.rows.Row` says, with
            arrays of shape (lanes,) and (warps, 32); of kind `atomic`, from the old value and the
            sources to the new value.
        make: Makes the function from the choices in the braces, in place of a fixed one.
    """
    pieces = re.split(r"\{([^}]*)\}", pattern)
    for chosen in itertools.product(*(piece.split(",") for piece in pieces[1::2])):
        opcode = "".join(itertools.chain(*itertools.zip_longest(pieces[::2], chosen, fillvalue="")))
        assert opcode not in ROWS, opcode
        chosen_function = make(*chosen) if make else function
        assert chosen_function is not None
        ROWS[opcode] = chosen_function
