"""What the machine code passes by itself is noted as by the tools: random loops, with and without.

The tools alone are compared with brute force in `test_races` and `test_accesses`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import Checked, check, kernel

from memlab.device.emulator.checks.checker import Checker
from memlab.device.emulator.machine.context import ChunkContext

THREADS, BLOCKS, ITERATIONS = 48, 3, 4
ARRAYS = {"a": 512, "b": 256, "c": 256}
"""Bytes of the arrays of global memory: `a` is read and written, `b` an output, `c` an input."""
WIDTHS = {"b8": "%h", "b32": "%x", "b64": "%e", "v2.b32": "{%x, %y}"}
ATOMICS = {"red": "red.{space}.add.u32 [%d{n}], 1;", "atom": "atom.{space}.add.u32 %x, [%d{n}], 1;"}
BARRIERS = ("bar.sync 0;", "bar.warp.sync -1;", "membar.gl;", "@%q bar.sync 0;")
COLLECTIVES = ("vote.sync.ballot.b32 %y, %q, -1;", "shfl.sync.down.b32 %y, %t, 8, 31, -1;")


@dataclass(frozen=True)
class Access:
    """An access that a thread repeats, each time so many bytes further on."""

    kind: str
    width: str
    place: str
    stride: int
    offset: int
    advance: int
    guard: int


ACCESSES = st.builds(
    Access,
    st.sampled_from(["ld", "ld", "st", "ld.volatile", "st.volatile", *ATOMICS]),
    st.sampled_from(list(WIDTHS)),
    st.sampled_from(["a", "a", "s", "s", "s", "b", "c", "l"]),
    st.sampled_from([0, 4, 8]),
    st.sampled_from([0, 0, 4, 8, 192]),
    st.sampled_from([0, 0, 4, 8, 64]),
    st.sampled_from([0, 0, 0, 1, 32]),
)
OPERATIONS = st.lists(
    ACCESSES | st.sampled_from(BARRIERS) | st.sampled_from(COLLECTIVES), min_size=1, max_size=6
)


def text_of(operations: Sequence[Access | str]) -> str:
    """A loop over operations: each has its own line."""
    head = ".reg .pred %p, %q; .reg .b16 %h; .reg .b32 %t, %i, %x, %y; .reg .b64 %e, %f, %g;"
    head += ".shared .align 8 .b8 s[512]; .local .align 8 .b8 l[64];"
    head += f".reg .b64 {', '.join(f'%d{n}' for n in range(len(operations)))};"
    head += "mov.u32 %t, %tid.x; mov.u32 %i, 0; mov.u32 %y, %ctaid.x;"
    head += "mul.wide.u32 %f, %t, 1; mul.wide.u32 %g, %y, 64;"
    first, loop = [head], ["setp.lt.u32 %q, %t, 40;", "LOOP:"]
    for n, operation in enumerate(operations):
        loop.append(f".loc 1 {n + 1} 1")
        if isinstance(operation, str):
            loop.append(operation)
            continue
        place, guard = operation.place, operation.guard
        load = f"ld.param.u64 %d{n}, [{place}]" if place in ARRAYS else f"mov.u64 %d{n}, {place}"
        first.append(f"{load}; mad.lo.u64 %d{n}, %f, {operation.stride}, %d{n};")
        if place in ARRAYS:
            first.append(f"add.u64 %d{n}, %d{n}, %g;")
        space = {"s": "shared", "l": "local"}.get(place, "global")
        name, *qualifiers = operation.kind.split(".")
        if name in ATOMICS:
            access = ATOMICS[name].format(space="shared" if space == "local" else space, n=n)
        else:
            opcode = ".".join([name, *qualifiers, space, operation.width])
            where, value = f"[%d{n}+{operation.offset}]", WIDTHS[operation.width]
            items = (value, where) if name == "ld" else (where, value)
            access = f"{opcode} {', '.join(items)};"
        if guard:
            loop.append(f"and.b32 %x, %t, {guard}; setp.eq.u32 %p, %x, 0;")
            access = f"@%p {access}"
        loop.append(f"{access} add.u64 %d{n}, %d{n}, {operation.advance};")
    end = f"add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {ITERATIONS}; @%p bra LOOP; ret;"
    return kernel("\n".join([*first, *loop, end]), ", ".join(f".u64 {name}" for name in ARRAYS))


def checked(text: str, chunk: int) -> Checked:
    arrays = {name: np.zeros(size // 4, np.uint32) for name, size in ARRAYS.items()}
    return check(text, arrays, grid=BLOCKS, block=THREADS, chunk=chunk, inputs="c", outputs="b")


@settings(max_examples=40)
@given(OPERATIONS, st.integers(1, BLOCKS))
def test_the_machine_code_hides_and_invents_nothing(
    operations: list[Access | str], chunk: int
) -> None:
    text = text_of(operations)
    found = checked(text, chunk)
    with patch.object(ChunkContext, "check_first"):
        expected = checked(text, chunk)
    assert found.mistakes == expected.mistakes
    for name in ARRAYS:
        assert np.array_equal(found.arrays[name], expected.arrays[name])


def test_the_tools_are_not_told_of_what_is_innocent() -> None:
    operations = [
        Access("ld", "b32", "a", 4, 0, 64, 0),
        Access("st", "b32", "s", 4, 0, 0, 0),
        "bar.sync 0;",
        Access("ld", "b64", "s", 0, 0, 8, 32),
        "bar.sync 0;",
    ]
    with patch.object(Checker, "memory_accessed") as told:
        assert not checked(text_of(operations), BLOCKS).mistakes
    assert not told.called
