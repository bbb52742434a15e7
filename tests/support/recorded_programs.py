"""The recorded results of the random programs (`random_programs`)."""

from __future__ import annotations

import contextlib
import io
from functools import partial
from typing import Any

import numpy as np
from ptx import Launched, run
from random_programs import RandomProgram, faulting_program, random_program
from recorded_results import Case, Record, digest, digest_array

from memlab.device.emulator.machine.tally import Tally
from memlab.errors import MemlabError

PROGRAMS, FAULTS = 300, 30
_QUICK_PROGRAMS, _QUICK_FAULTS = 80, 15  # of them, in every run of the tests
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


def record_tally(tally: Tally) -> Record:
    """For each counter its sum, and the digest of its counts by instruction."""
    return {
        name: f"{sum(counts)} {digest(','.join(map(str, counts)))}"
        for name, counts in vars(tally).items()
        if any(counts)
    }


def record_arrays(program: RandomProgram, launched: Launched) -> Record:
    """For each array that is written: the digest of its values, how many elements, and which."""
    arrays = {}
    for name, before in program.arrays.items():
        written = launched.memory.elements_written(name)
        if written.size or not np.array_equal(before, launched[name]):
            values = digest_array(launched[name], program.floats.get(name, ""))
            arrays[name] = f"{values} {written.size} {digest(written.tobytes())}"
    return arrays


def _record_program(seed: int) -> Record:
    program = random_program(seed)
    launched, printed = execute(program)
    return _head(program) | {
        "counters": record_tally(launched.tally),
        "arrays": record_arrays(program, launched),
        **({"printed": f"{len(printed)} characters {digest(printed)}"} if printed else {}),
    }


def _record_fault(seed: int) -> Record:
    program = faulting_program(seed)
    try:
        execute(program)
        message = "no fault"
    except MemlabError as error:
        message = f"{type(error).__name__}: {error}"
    return _head(program) | {"message": message}


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
