"""The recorded results of the random programs (`random_programs`)."""

from __future__ import annotations

import contextlib
import io
from functools import partial
from typing import Any

from ptx import Launched, run
from random_programs import RandomProgram, faulting_program, random_program
from recorded_launches import record_arrays, record_error, record_tally, record_text
from recorded_results import Case, Record, digest, digest_array

from memlab.errors import MemlabError

PROGRAMS, FAULTS = 320, 30
_QUICK_PROGRAMS, _QUICK_FAULTS = 60, 10  # of them, in every run of the tests
_OTHER_SEEDS = {41: 341}
"""Seeds of programs that are not those of their number. Number 41 reaches `fma.rn.f64` with a
product beyond the largest number and an infinity: that gives the infinity (IEEE 754-2019, 5.4.1:
no intermediate rounding), but gave NaN in the emulator that made the records."""
_SOURCE = tuple(f"statement {number};" for number in range(1, 10))  # lines that messages quote


def cases() -> list[Case]:
    """The random programs, and those that stop at a fault."""
    return [
        *(
            Case(
                f"random-{n:03}",
                "random-programs",
                partial(_record_program, n),
                n >= _QUICK_PROGRAMS,
            )
            for n in range(PROGRAMS)
        ),
        *(
            Case(
                f"fault-{n:02}", "faulting-programs", partial(_record_fault, n), n >= _QUICK_FAULTS
            )
            for n in range(FAULTS)
        ),
    ]


def _is_slow(number: int) -> bool:
    return _QUICK_PROGRAMS <= number < PROGRAMS - 5


def execute(program: RandomProgram, chunk: int | None = None) -> tuple[Launched, str]:
    """Run a program, and give what it printed too; `chunk` is how many blocks to run at once."""
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        launched = run(
            program.text,
            program.arrays,
            program.scalars,
            grid=program.grid,
            block=program.block,
            dynamic_shared_bytes=program.dynamic_shared_bytes,
            chunk=chunk or program.chunk,
            source=_SOURCE,
        )
    return launched, printed.getvalue()


def _record_program(seed: int) -> Record:
    program = random_program(_OTHER_SEEDS.get(seed, seed))
    launched, printed = execute(program)
    return _head(program) | {
        "counters": record_tally(launched.tally),
        "arrays": record_arrays(launched, program.arrays, program.floats),
        **record_text(printed),
    }


def _record_fault(seed: int) -> Record:
    program = faulting_program(seed)
    try:
        execute(program)
    except MemlabError as error:
        return _head(program) | record_error(error)
    return _head(program) | {"message": "no fault"}


def _head(program: RandomProgram) -> Record:
    """What the program is: its digest changes where the generator does."""
    inputs: list[Any] = [program.text, *map(int, program.scalars), program.grid, program.block]
    inputs += [program.dynamic_shared_bytes, program.chunk]
    arrays = "".join(digest_array(array) for array in program.arrays.values())
    does = [*program.features, *["races"] * program.races, *["ordered"] * program.ordered]
    blocks, threads = ("x".join(map(str, size)) for size in (program.grid, program.block))
    return {
        "program": digest(repr(inputs) + arrays),
        "launch": f"{blocks} blocks of {threads} threads",
        "does": ", ".join(dict.fromkeys(does)),
    }
