"""Accesses of every width and space, against a walk over them byte by byte."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ptx import Mistake, check, kernel, numbered

ARRAYS = {"a": 100, "b": 72, "c": 64}
"""Bytes of the arrays of global memory: `a` is read and written, `b` an output, `c` an input."""
VARIABLES = {"s": ("shared", 0, 64), "u": ("shared", 64, 40), "l": ("local", 0, 48)}
"""State space, start and bytes of each variable."""
SPACES = {name: [s for s, _, _ in VARIABLES.values()].count(name) for name in ("shared", "local")}
PLACES = ("a", "b", "c", "either", "s", "u", "l", "generic s", "generic l", "generic a")
WIDTHS = {"b8": (1, 1), "b16": (2, 1), "b32": (4, 1), "b64": (8, 1)}
WIDTHS |= {"v2.b32": (4, 2), "v4.b32": (4, 4)}
"""Bytes of an element, and how many of them a lane moves."""


@dataclass(frozen=True)
class Access:
    """What every thread does whose number has some bits: at a place, by its number, so far on."""

    kind: str
    width: str
    place: str
    stride: int
    offset: int
    guard: tuple[int, int] | None


PLACES_OF = {"load": PLACES, "store": PLACES, "atomic": [each for each in PLACES if each != "l"]}
PLACES_OF["atomic"].remove("generic l")
WIDTHS_OF = {"load": list(WIDTHS), "store": list(WIDTHS), "atomic": ["b32", "b64"]}
ACCESSES = st.sampled_from(list(WIDTHS_OF)).flatmap(
    lambda kind: st.builds(
        Access,
        st.just(kind),
        st.sampled_from(WIDTHS_OF[kind]),
        st.sampled_from(PLACES_OF[kind]),
        st.sampled_from([0, 1, 4, 8, 16]),
        st.sampled_from([0, 0, 1, 2, 4, 8, 16, 28, 48, 64, 68, 96]),
        st.none() | st.none() | st.tuples(st.integers(1, 7), st.integers(0, 7)),
    )
)


def text_of(accesses: Sequence[Access], threads: int) -> str:
    """A line of PTX for each access, and for a load one more that records what was read."""
    head = ".reg .pred %p, %q; .reg .b16 %h; .reg .b32 %t, %x, %v<4>; .reg .b64 %d, %e, %w, %log;"
    head += f".reg .b64 {', '.join(f'%{n}_{i}' for n in NAMES.values() for i in range(17))};"
    head += ".shared .align 16 .b8 s[64]; .shared .align 16 .b8 u[40]; .local .align 16 .b8 l[48];"
    head += f"mov.u32 %t, %tid.x; mov.u32 %x, %ctaid.x; mad.lo.u32 %x, %x, {threads}, %t;"
    head += "ld.param.u64 %log, [log]; mul.wide.u32 %d, %x, 4; add.u64 %log, %log, %d;"
    lines = [head]
    made = set()
    for number, access in enumerate(accesses):
        register = f"%{NAMES[access.place]}_{access.stride}"
        line = ""
        if register not in made:
            made.add(register)
            line += f"{base_of(access.place, register)} mul.wide.u32 %d, %t, {access.stride};"
            line += f"add.u64 {register}, {register}, %d;"
        at = ""
        if access.guard is not None:
            line += f"and.b32 %x, %t, {access.guard[0]}; setp.eq.u32 %p, %x, {access.guard[1]};"
            at = "@%p "
        space = space_of(access.place)
        space = "" if space == "generic" else f".{space}"
        place, wide = f"[{register}+{access.offset}]", access.width == "b64"
        _, vector = WIDTHS[access.width]
        to = "%w" if wide else "%v0"
        if vector > 1:
            to = "{" + ", ".join(f"%v{n}" for n in range(vector)) + "}"
        if access.kind == "load":
            line += f"mov.u64 %w, 0; mov.u32 %v{vector - 1}, 0;"
            line += f"{at}ld{space}.{access.width} {to}, {place};"
        else:
            for n in range(vector):  # thread by thread and element by element another value
                line += f"mad.lo.u32 %v{n}, %t, 8, {16 * number + n + 1};"
            line += f"cvt.u64.u32 %w, %v0; mul.lo.u64 %w, %w, {1 << 32 | 1};" if wide else ""
            if access.kind == "store":
                line += f"{at}st{space}.{access.width} {place}, {to};"
            else:
                line += f"{at}red{space}.add.u{access.width[1:]} {place}, {to};"
        lines.append(line)
        lines.append("")
        if access.kind == "load":
            last = f"%v{vector - 1}"
            low = f"shr.u64 %w, %w, 32; cvt.u32.u64 {last}, %w;" if wide else ""
            lines[-1] = f"{low} st.global.b32 [%log+{4 * number * threads * BLOCKS}], {last};"
    parameters = ", ".join(f".u64 {name}" for name in (*ARRAYS, "log"))
    return kernel(numbered("\n".join([*lines, "ret;"])), parameters)


NAMES = {name: name.replace(" ", "_") for name in PLACES}
BLOCKS = 2


def base_of(place: str, register: str) -> str:
    name = place.removeprefix("generic ")
    if place == "either":  # its threads have `a` or `c`: nobody can tell from the program
        choice = f"setp.eq.u32 %q, %t, 33; selp.b64 {register}, %e, {register}, %q;"
        return f"ld.param.u64 {register}, [a]; ld.param.u64 %e, [c]; {choice}"
    if name in ARRAYS:
        return f"ld.param.u64 {register}, [{name}];"
    space, _, _ = VARIABLES[name]
    generic = f"cvta.{space}.u64 {register}, {register};" if place != name else ""
    return f"mov.u64 {register}, {name}; {generic}"


def space_of(place: str) -> str:
    if place.startswith("generic"):
        return "generic"
    return VARIABLES[place][0] if place in VARIABLES else "global"


@dataclass
class Model:
    """The same by hand: bytes by place, and which of them hold nothing."""

    unit: dict[str, int]
    data: dict[tuple[str, int], int] = field(default_factory=dict)
    empty: set[tuple[str, int]] = field(default_factory=set)
    mistakes: dict[tuple[Any, ...], Mistake] = field(default_factory=dict)

    def note(self, tool: str, kind: str, number: int, name: str, offset: int, at: Any) -> None:
        """Count a mistake; of several the first is told."""
        space, index = place_of(name)
        line = 2 * number + 2
        key = (tool, kind, line, space, index)
        site = (line, *at)
        old = self.mistakes.get(key)
        if old is None or site < old.at:
            count = 1 if old is None else old.count + 1
            self.mistakes[key] = Mistake(tool, kind, space, index, offset, count, site)
        else:
            self.mistakes[key] = Mistake(*key[:2], space, index, old.offset, old.count + 1, old.at)


def place_of(name: str) -> tuple[str, int]:
    """The state space of an array, and its number there."""
    if name in ARRAYS:
        return "global", list(ARRAYS).index(name)
    space = VARIABLES[name][0]
    return space, [n for n, (s, _, _) in VARIABLES.items() if s == space].index(name)


def size_of(name: str) -> int:
    return ARRAYS[name] if name in ARRAYS else VARIABLES[name][2]


def bytes_of(name: str, block: int, thread: int) -> str:
    """Whose bytes a thread touches in an array."""
    space, _ = place_of(name)
    return name + {"global": "", "shared": f" {block}", "local": f" {block} {thread}"}[space]


def walk(
    accesses: Sequence[Access], threads: int, chunk: int
) -> tuple[set[Mistake], dict[str, Any], Any]:
    """The mistakes, what is left in global memory, and what the loads read."""
    unit = {"global": 4, "shared": 16, "local": 16}  # what is read is recorded in words
    for access in accesses:
        space = space_of(access.place)
        for each in unit if space == "generic" else (space,):
            unit[each] = min(unit[each], WIDTHS[access.width][0])
    model = Model(unit)
    for block in range(BLOCKS):
        for thread in range(threads):
            for name, (_, _, size) in VARIABLES.items():
                model.empty |= {(bytes_of(name, block, thread), n) for n in range(size)}
    model.empty |= {("b", n) for n in range(ARRAYS["b"])}
    log = np.zeros((len(accesses), BLOCKS * threads), np.uint32)
    for first in range(0, BLOCKS, chunk):
        at = [(block, thread) for block in range(first, first + chunk) for thread in range(threads)]
        for number, access in enumerate(accesses):
            carry_out(model, number, access, at, threads, log)
    arrays = {
        name: np.array([model.data.get((name, n), 0) for n in range(size)], np.uint8)
        for name, size in ARRAYS.items()
    }
    return set(model.mistakes.values()), arrays, log


def carry_out(
    model: Model,
    number: int,
    access: Access,
    threads: Sequence[tuple[int, int]],
    threads_per_block: int,
    log: Any,
) -> None:
    """One instruction of some threads, given with their blocks: all read before any writes."""
    element, vector = WIDTHS[access.width]
    size = element * vector
    good = []
    for block, thread in threads:
        if access.guard is not None and thread & access.guard[0] != access.guard[1]:
            continue
        name = access.place.removeprefix("generic ")
        if name == "either":
            name = "c" if thread == 33 else "a"
        offset = thread * access.stride + access.offset
        space, at = place_of(name)[0], (block, thread)
        start = VARIABLES[name][1] if name in VARIABLES else 0
        if (start + offset) % size:
            model.note("memcheck", "misaligned", number, name, offset, at)
        elif offset + size > size_of(name):
            model.note("memcheck", "out of bounds", number, name, offset, at)
        elif name == "c" and access.kind != "load":
            model.note("memcheck", "not writable", number, name, offset, at)
        else:
            good.append((block, thread, bytes_of(name, block, thread), offset))
            unit = model.unit[space]
            if access.kind == "store":
                continue
            for first in range(offset, offset + size, element):
                if all((good[-1][2], n) in model.empty for n in range(first, first + element)):
                    model.note("initcheck", "uninitialized read", number, name, first, at)
                    break
    for block, thread, place, offset in good:
        where = [(place, offset + n) for n in range(size)]
        old = bytes(model.data.get(each, 0) for each in where)
        if access.kind == "load":
            last = int.from_bytes(old[-min(4, element) :], "little")
            log[number, block * threads_per_block + thread] = last
            continue
        value = 8 * thread + 16 * number
        new = b"".join(
            ((value + n + 1) * (1 << 32 | 1)).to_bytes(12, "little")[:element]
            for n in range(vector)
        )
        if access.kind == "atomic":
            total = int.from_bytes(old, "little") + int.from_bytes(new, "little")
            new = (total % (1 << 8 * size)).to_bytes(size, "little")
        model.data |= dict(zip(where, new, strict=True))
    for _, _, place, offset in good:
        if access.kind != "load":  # what a unit holds in part counts as written
            unit = model.unit[place_of(place.split()[0])[0]]
            first = offset // unit * unit
            model.empty -= {(place, n) for n in range(first, max(offset + size, first + unit))}


PAST_THE_END = [
    Access("load", "v4.b32", "a", 0, 96, None),
    Access("store", "b64", "u", 8, 28, None),
    Access("load", "v2.b32", "a", 4, 68, (3, 2)),
]
"""All or some lanes begin inside an array and end behind it."""
EITHER = [
    Access("load", "b32", "either", 1, 4, (3, 0)),
    Access("store", "b32", "either", 0, 8, None),
]
"""Of an array that nobody knows from the program the alignment counts, and whether it is read."""
TWICE = [Access("load", "b8", "s", 1, 0, None), Access("load", "b8", "s", 1, 0, None)]
"""A read at fault does not write."""


@pytest.mark.slow
@example(PAST_THE_END, 40, 1)
@example(EITHER, 64, 2)
@example(TWICE, 32, 1)
@settings(max_examples=120, deadline=None)
@given(st.lists(ACCESSES, min_size=1, max_size=6), st.sampled_from([32, 40, 64]), st.integers(1, 2))
def test_every_access_is_judged_as_a_walk_by_hand_does(
    accesses: list[Access], threads: int, chunk: int
) -> None:
    arrays = {name: np.zeros(size // 4, np.uint32) for name, size in ARRAYS.items()}
    arrays["log"] = np.zeros((len(accesses), BLOCKS * threads), np.uint32)
    found = check(
        text_of(accesses, threads),
        arrays,
        grid=BLOCKS,
        block=threads,
        chunk=chunk,
        inputs=("c",),
        outputs=("b",),
    )
    mistakes, left, log = walk(accesses, threads, chunk)
    assert {each for each in found.mistakes if each.tool in ("memcheck", "initcheck")} == mistakes
    for name, data in left.items():
        assert np.array_equal(found.arrays[name].view(np.uint8), data), name
    assert np.array_equal(found.arrays["log"], log)


def test_lanes_at_fault_read_zeros_into_the_widest_registers() -> None:
    body = """
        mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 16; add.u64 %rd3, %rd1, %rd2;
        ld.global.b128 %wide, [%rd3]; mov.b128 {%rd4, %rd5}, %wide;
    """
    text = f""".version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a) {{
    .reg .b32 %r<3>; .reg .b64 %rd<6>; .reg .b128 %wide;
    ld.param.u64 %rd1, [a];
    {body}
    ret;
}}"""
    found = check(text, {"a": np.zeros(64, np.uint32)})  # 16 of the 32 lanes read inside
    assert [mistake.count for mistake in found.of("memcheck")] == [16]


@pytest.mark.parametrize("space", ["const", "shared", "local", "global"])
def test_lanes_at_both_ends_of_the_address_space_are_at_fault(space: str) -> None:
    """The distance between their addresses does not fit into 64 bits."""
    text = f""".version 8.8
.target sm_90
.address_size 64
.const .align 8 .b8 c[64];
.visible .entry k(.param .u64 a) {{
    .reg .b64 %rd<6>; .reg .b32 %r<3>; .reg .pred %p1;
    .shared .align 8 .b8 s[64]; .local .align 8 .b8 l[64];
    ld.param.u64 %rd1, [a]; mov.u64 %rd2, c; mov.u64 %rd2, s; mov.u64 %rd2, l;
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0;
    selp.b64 %rd3, 0x7FFFFFFFFFFFFFF8, 0x8000000000000000, %p1;
    ld.{space}.u64 %rd4, [%rd3]; st.global.u64 [%rd1], %rd4;
    ret;
}}"""
    found = check(text, {"a": np.zeros(64, np.uint64)}, tools=("memcheck",))
    assert [mistake.count for mistake in found.of("memcheck")] == [32]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("const.u64 %rd2, [c+56]", ""),
        ("const.u64 %rd2, [c+64]", "out of bounds"),
        ("const.u64 %rd2, [c+-8]", "out of bounds"),
        ("const.u64 %rd2, [c+4]", "misaligned"),
        ("const.u64 %rd2, [64]", "out of bounds"),
        ("const.v2.u64 {%rd2, %rd3}, [c+56]", "misaligned"),
        ("param.u64 %rd2, [a+8]", "out of bounds"),
    ],
)
def test_a_fixed_place_outside_its_variable_is_a_mistake(place: str, kind: str) -> None:
    text = f""".version 8.8
.target sm_90
.address_size 64
.const .align 8 .b8 c[64];
.visible .entry k(.param .u64 a) {{
    .reg .b64 %rd<5>;
    mov.u64 %rd1, c; ld.{place}; ld.param.u64 %rd4, [a]; st.global.u64 [%rd4], %rd2;
    ret;
}}"""
    found = check(text, {"a": np.ones(64, np.uint64)}, tools=("memcheck",))
    assert [(m.kind, m.count) for m in found.of("memcheck")] == ([(kind, 32)] if kind else [])
    assert found.arrays["a"][0] == 0
