"""Random PTX kernels that end, in which most of what a kernel can do occurs; a number is a program.

`random_program(17)` is always the same kernel with the same launch and arrays. Nothing here depends
on the emulator. A program is a list of statements; each keeps these rules, so that its result is
defined:

- A loop runs at most a few times; a branch is structured, or jumps to an `exit`.
- Integers never depend on the bits of a floating-point number (`random_instructions`).
- Addresses are masked into their arrays. Threads may load the same elements, but each stores to
  places of its own. What threads exchange through shared memory lies between two barriers.
- Only threads of one block that all come meet at a barrier, but for those that have exited.

Where the result depends on which thread comes first, `races` or `ordered` says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from random_instructions import FLOAT_LITERALS, WIDTH_BYTES
from random_statements import (
    INPUT_ELEMENTS,
    INPUTS,
    MARGIN_BYTES,
    OWN_BYTES,
    REGISTERS,
    ROWS,
    SHARED_FLOATS,
    SHARED_SUMS,
    SHARED_WORDS,
    SUMS,
    TYPES,
    WHOLE_SUMS,
    Statements,
    register,
)

Dim3 = tuple[int, int, int]

_BLOCKS: tuple[Dim3, ...] = (
    *((n, 1, 1) for n in (32, 64, 96, 128, 256, 512)),
    *((n, 1, 1) for n in (1, 7, 33, 50, 100, 200)),
    *((16, 4, 1), (32, 2, 1), (8, 8, 2), (4, 4, 4), (5, 7, 1), (3, 5, 7), (33, 2, 2)),
)
_GRIDS: tuple[Dim3, ...] = (
    *((n, 1, 1) for n in (1, 2, 3, 5, 13, 64, 150, 300)),
    *((4, 3, 1), (9, 5, 1), (3, 2, 4), (7, 1, 5)),
)
_MOST_LANES = 12_288
_FORMAT = b"%d of thread %u\n\0"


@dataclass(frozen=True)
class RandomProgram:
    """A kernel, `k`, and its launch.

    Attributes:
        name: Its name, from its number.
        text: The PTX.
        arrays: What the arrays hold at first, by name, in the order of the parameters.
        floats: The arrays of floating-point numbers: `f16`, `bf16`, `f32` or `f64` by name.
        scalars: The parameters behind the arrays.
        grid: Blocks.
        block: Threads of a block.
        dynamic_shared_bytes: Size of the dynamic shared array.
        chunk: How many blocks to run at a time; None for all.
        features: What it does that not every program does, sorted.
        races: Whether threads of a block race for shared memory.
        ordered: Whether the result depends on the order in which threads execute atomics.
    """

    name: str
    text: str
    arrays: dict[str, NDArray[np.generic]]
    floats: dict[str, str]
    scalars: tuple[np.uint32, ...]
    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    chunk: int | None
    features: tuple[str, ...]
    races: bool
    ordered: bool


def random_program(seed: int) -> RandomProgram:
    """The program with a number; from 300 on, all load bytes at any address."""
    return _Writer(f"random-{seed:03}", narrow=seed >= 300).program()


def faulting_program(seed: int) -> RandomProgram:
    """The program with a number among those that stop at a fault."""
    return _Writer(f"fault-{seed:02}").program(fault=_FAULTS[seed % len(_FAULTS)])


class _Writer(Statements):
    """Writes one program, the same for the same name."""

    def __init__(self, name: str, narrow: bool = False) -> None:
        source = random.Random(name)
        block = source.choice(_BLOCKS)
        warps = -(-_volume(block) // 32)
        grid = source.choice([g for g in _GRIDS if _volume(g) * warps * 32 <= _MOST_LANES])
        super().__init__(source, _volume(block), _volume(grid))
        self._name, self._grid, self._block, self._is_narrow = name, grid, block, narrow
        self._module: list[str] = []
        self._prints = self._all_come = False

    def _choose_features(self) -> None:
        """What this program may do; no program does everything."""
        draw, lanes = self._random, self._blocks * self._warps * 32
        self._families = ["integers", "bits", "predicates", "f32"]
        self._families += draw.sample(["integers", "conversions", "f64", "halves", "f32"], 3)
        if lanes <= 256 and self._one_in(2):
            self._families.append("directed f64")
        self._menu: list[Callable[[], None]] = [self._compute, self._load_input, self._load_input]
        extra: list[Callable[[], None]] = [
            *(self._carry_chain, self._opposite_predicates, self._pack, self._special),
            *(self._store_own, self._store_row, self._local, self._constant, self._parameter),
            *(self._load_shared, self._reduce_global, self._reduce_shared, self._warp),
            *(self._warp, self._joined_arms, self._call, self._load_shared),
        ]
        self._menu += draw.sample(extra, 8)
        if self._one_in(4):
            self._menu += [self._ordered_atomic] * 2
        if self._one_in(12):
            self._menu.append(self._race)
        if self._one_in(15):
            self._menu.append(self._clock)
        if self._is_narrow:
            self._menu += [self._narrow] * 4
        self._prints = self._one_in(15)
        whole: list[Callable[[], None]] = [self._exchange, self._tree_sum, self._vote_of_block]
        whole += [self._copy_async, self._whole_warps]
        self._together = draw.sample(whole, draw.randrange(3))
        self._all_come = self._warps > 1 and self._one_in(4)
        if self._all_come:
            self._together.append(self._producers)
            if self._threads % 64 == 0:
                self._together.append(self._pairs_of_warps)
        elif self._one_in(4):
            self._menu.append(self._early_exit)
        self._deepest = draw.randrange(1, 4)

    def program(self, fault: Callable[[_Writer], None] | None = None) -> RandomProgram:
        """Write the program; at its end it makes the fault, if any."""
        draw = self._random
        self._choose_features()
        if fault is not None:
            self._all_come = True
            self._menu = [choice for choice in self._menu if choice != self._early_exit]
        for _ in range(2):
            self._write_function()
        self._start()
        self._statements(0, most=4)
        self._statements(0, most=4)
        if self._prints:
            self._print()
        if fault is not None:
            fault(self)
        self._finish()
        total = self._threads * self._blocks
        limit = total if self._one_in(2) else total - draw.randrange(total // 3 + 1)
        chunk = draw.randint(1, self._blocks) if self._one_in(3) else None
        arrays, floats = self._arrays()
        return RandomProgram(
            name=self._name,
            text=self._text(arrays),
            arrays=arrays,
            floats=floats,
            scalars=tuple(map(np.uint32, (limit, draw.getrandbits(32), draw.randrange(9)))),
            grid=self._grid,
            block=self._block,
            dynamic_shared_bytes=16 * self._block_slots,
            chunk=chunk,
            features=tuple(sorted(self._features)),
            races=self._races,
            ordered=self._ordered,
        )

    def _start(self) -> None:
        """Thread numbers, base addresses, and first values of registers and shared memory."""
        self._emit(
            "mov.u32 %t0, %tid.x; mov.u32 %t1, %tid.y; mov.u32 %t2, %tid.z;",
            "mov.u32 %t3, %ntid.x; mov.u32 %t4, %ntid.y; mov.u32 %t5, %ntid.z;",
            "mad.lo.u32 %t2, %t2, %t4, %t1; mad.lo.u32 %thread, %t2, %t3, %t0;",
            "mul.lo.u32 %t3, %t3, %t4; mul.lo.u32 %t3, %t3, %t5;",
            "mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ctaid.y; mov.u32 %t2, %ctaid.z;",
            "mov.u32 %t4, %nctaid.x; mov.u32 %t5, %nctaid.y;",
            "mad.lo.u32 %t2, %t2, %t5, %t1; mad.lo.u32 %blocknumber, %t2, %t4, %t0;",
            "mad.lo.u32 %gid, %blocknumber, %t3, %thread; mov.u32 %lane, %laneid;",
        )
        for kind in INPUTS:
            self._emit(f"ld.param.u64 %in_{kind}, [in_{kind}];")
            self._emit(f"add.s64 %in_{kind}, %in_{kind}, {MARGIN_BYTES};")
        for name in ("rows", "sums_add", "sums_mix"):
            self._emit(f"ld.param.u64 %{name}, [{name}];")
        self._emit(f"ld.param.u64 %own, [own]; mad.wide.u32 %own, %gid, {OWN_BYTES}, %own;")
        for number, name in enumerate(WHOLE_SUMS[1:], 1):
            self._emit(f"add.s64 %sums_{name}, %sums_add, {number * 8 * SUMS};")
        for kind, name in (("f", "sums_f"), ("d", "sums_d"), ("x", "sums_x")):
            self._emit(f"ld.param.u64 %a0, [{name}]; sub.s64 %sums_to_{kind}, %a0, %sums_mix;")
        self._fill_registers()
        words = self._label()
        self._emit(
            "mov.u32 %t0, %thread;",
            f"{words}:",
            f"and.b32 %t1, %t0, {SHARED_WORDS - 1}; mul.wide.u32 %a0, %t1, 4;",
            "mov.u64 %a1, words; add.s64 %a1, %a1, %a0; mad.lo.u32 %t2, %t1, 40503, %blocknumber;",
            "st.shared.u32 [%a1], %t2;",
            f"and.b32 %t1, %t0, {SHARED_FLOATS - 1}; mul.wide.u32 %a0, %t1, 4;",
            "mov.u64 %a1, floats; add.s64 %a1, %a1, %a0; cvt.rn.f32.u32 %e0, %t1;",
            "st.shared.f32 [%a1], %e0;",
            f"and.b32 %t1, %t0, {SHARED_SUMS - 1}; mul.wide.u32 %a0, %t1, 4; mov.u32 %t2, 0;",
            "mov.u64 %a1, counts; add.s64 %a1, %a1, %a0;",
            "st.shared.u32 [%a1], %t2; st.shared.u32 [%a1+64], %t2;",
            "mov.u64 %a1, raced; add.s64 %a1, %a1, %a0; st.shared.u32 [%a1], %t2;",
            f"add.u32 %t0, %t0, {self._threads}; setp.lt.u32 %q, %t0, {SHARED_WORDS};",
            f"@%q bra {words};",
            "mul.wide.u32 %a0, %thread, 16; mov.u64 %a1, copied; add.s64 %a0, %a1, %a0;",
            "st.shared.v4.b32 [%a0], {%t2, %gid, %t2, %t2};",
            "mul.wide.u32 %a0, %thread, 8; mov.u64 %a1, exchanged; add.s64 %a0, %a1, %a0;",
            "st.shared.v2.b32 [%a0], {%gid, %t2};",
            *(f"st.local.v4.b32 [local+{at}], {{%r0, %gid, %r1, %t2}};" for at in (0, 16, 32, 48)),
            "bar.sync 0;",
        )
        if not self._all_come and self._one_in(2):
            self._emit("ld.param.u32 %t0, [s0]; setp.ge.u32 %q, %gid, %t0;", "@%q bra $End;")

    def _fill_registers(self) -> None:
        for number in range(4):
            factor = self._random.getrandbits(31) | 1
            source = self._random.choice(("%gid", "%thread", "%lane", "%blocknumber"))
            self._emit(f"mad.lo.u32 %r{number}, {source}, {factor % 65536}, {number};")
        self._emit(
            f"mul.wide.u32 %l0, %r0, {self._random.getrandbits(31)};", "cvt.u16.u32 %h0, %r1;"
        )
        for kind in "rlhfdxy":  # the last integers, and all floating-point numbers, from the inputs
            first = {"r": 4, "l": 1, "h": 1}.get(kind, 0)
            for number in range(first, REGISTERS[kind]):
                width = WIDTH_BYTES[kind]
                name = register(kind, number)
                self._emit(f"mul.wide.u32 %a0, {self._index(INPUT_ELEMENTS)}, {width};")
                self._emit(f"add.s64 %a0, %in_{kind}, %a0; ld.global.b{8 * width} {name}, [%a0];")
        for pair, half in ("Xx", "Yy"):
            for number in range(REGISTERS[pair]):
                halves = ", ".join(register(half, n) for n in (number, number + 1))
                self._emit(f"mov.b32 {register(pair, number)}, {{{halves}}};")
        for number in range(REGISTERS["p"]):
            bits = self._random.choice((1, 2, 4, 7, 31))
            self._emit(f"and.b32 %t0, %r{number}, {bits}; setp.ne.u32 %p{number}, %t0, 0;")

    def _finish(self) -> None:
        """Stores what the registers and the shared counters hold, and ends."""
        for kind in "rlhfdxyXY":
            width, count = WIDTH_BYTES[kind], REGISTERS[kind]
            self._emit(f"ld.param.u64 %a0, [out_{kind}]; mad.wide.u32 %a0, %gid, {width}, %a0;")
            for number in range(count):
                at = f"[%a0+{number * width * self._slots}]"
                self._emit(f"st.global.b{8 * width} {at}, {register(kind, number)};")
        self._emit("mov.u32 %t0, 0;")
        for number in range(REGISTERS["p"]):
            self._emit(f"selp.u32 %t1, {1 << number}, 0, %p{number}; or.b32 %t0, %t0, %t1;")
        self._emit("ld.param.u64 %a0, [out_p]; cvt.u64.u32 %a1, %gid; add.s64 %a0, %a0, %a1;")
        self._emit("st.global.u8 [%a0], %t0;")
        if "shared atomics" in self._features:
            self._emit(
                "bar.sync 0;",
                f"setp.ge.u32 %q, %thread, {SHARED_SUMS};",
                "@%q bra $End;",
                "mul.wide.u32 %a0, %thread, 4; mov.u64 %a1, counts; add.s64 %a1, %a1, %a0;",
                "ld.shared.u32 %t0, [%a1]; ld.shared.u32 %t1, [%a1+64];",
                "ld.param.u64 %a2, [out_counts];",
                f"mad.wide.u32 %a2, %blocknumber, {8 * SHARED_SUMS}, %a2;",
                "add.s64 %a2, %a2, %a0; st.global.u32 [%a2], %t0;",
                f"st.global.u32 [%a2+{4 * SHARED_SUMS}], %t1;",
            )
        self._emit("$End:", "ret;", *self._outlined)

    def _write_function(self) -> None:
        """A function of a few statements, with a branch and at times a loop or an early return."""
        kept, self._lines = self._lines, []
        name = f"f{len(self._functions)}"
        choices = (("r", "rr"), ("f", "ff"), ("r", "rf"), ("l", "lr"))
        result, arguments = self._random.choice(choices)
        for number, kind in enumerate(arguments):
            self._emit(f"ld.param.{TYPES[kind]} %arg{number}, [{name}_{number}];")
        families = self._families
        self._families = ["integers", "f32", "predicates", "bits"]
        body_end, back = self._label(), self._label()
        for kind in "rlhfp":
            for number in range(REGISTERS[kind]):
                self._emit(_first_value(kind, number, arguments))
        self._several(2, 4)
        self._emit(f"@{self._pick('p')} bra {body_end};")
        self._several(1, 3)
        if self._one_in(3):
            self._emit(f"@{self._pick('p')} bra {back};")
            self._several(1, 2)
        if self._one_in(2):
            head = self._label()
            self._emit("mov.u32 %c, 0;", f"{head}:")
            self._several(1, 3)
            self._emit(f"add.u32 %c, %c, 1; setp.lt.u32 %p0, %c, {self._random.randint(1, 4)};")
            self._emit(f"@%p0 bra {head};")
        self._emit(f"{body_end}:")
        self._several(1, 2)
        self._emit(f"{back}:")
        self._emit(f"st.param.{TYPES[result]} [{name}_back], {self._pick(result)};", "ret;")
        parameters = ", ".join(
            f".param .{TYPES[kind]} {name}_{number}" for number, kind in enumerate(arguments)
        )
        declared = [_declaration(kind) for kind in "rlhfp"]
        declared += [f".reg .{TYPES[kind]} %arg{n};" for n, kind in enumerate(arguments)]
        head_line = f".func (.param .{TYPES[result]} {name}_back) {name}({parameters})"
        self._module += [head_line, "{", *declared, ".reg .b32 %c;", *self._lines, "}"]
        self._functions.append((name, result, arguments))
        self._lines, self._families = kept, families

    def _arrays(self) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
        """The arrays as they are at first, and the types of those that hold floating point."""
        arrays: dict[str, NDArray[np.generic]] = {}
        floats: dict[str, str] = {}
        for kind, name in INPUTS.items():
            width = WIDTH_BYTES[kind]
            count = INPUT_ELEMENTS + 2 * MARGIN_BYTES // width
            raw = b"".join(_element(name, self._random) for _ in range(count))
            arrays[f"in_{kind}"] = np.frombuffer(raw, f"u{width}").copy()
        arrays["own"] = np.zeros(self._slots * OWN_BYTES, np.uint8)
        arrays["rows"] = np.zeros(self._slots * 16 * ROWS, np.uint8)
        arrays["sums_add"] = np.zeros(len(WHOLE_SUMS) * SUMS, np.uint64)
        arrays["sums_mix"] = np.zeros(SUMS, np.uint64)
        for kind, name in (("f", "f32"), ("d", "f64"), ("x", "f16")):
            width = WIDTH_BYTES[kind]
            arrays[f"sums_{kind}"] = np.zeros(8 * SUMS // width, f"u{width}")
            floats[f"sums_{kind}"] = name
        for kind in "rlhfdxyXY":
            count = self._slots * REGISTERS[kind]
            arrays[f"out_{kind}"] = np.zeros(count, f"u{WIDTH_BYTES[kind]}")
            name = INPUTS[kind.lower()]
            if name[0] != "u":
                floats[f"out_{kind}"] = name
        arrays["out_p"] = np.zeros(self._slots, np.uint8)
        arrays["out_counts"] = np.zeros(2 * SHARED_SUMS * self._blocks, np.uint32)
        return arrays, floats

    def _text(self, arrays: Iterable[str]) -> str:
        parameters = [f".param .u64 {name}" for name in arrays]
        parameters += [f".param .u32 s{number}" for number in range(3)]
        table = ", ".join(str(self._random.getrandbits(32)) for _ in range(64))
        characters = ", ".join(map(str, _FORMAT))
        bases = [*(f"in_{kind}" for kind in INPUTS), "own", "rows", "sums_mix"]
        bases += [f"sums_{name}" for name in WHOLE_SUMS]
        bases += [f"sums_to_{kind}" for kind in "fdx"]
        words = [*self._counters, "%gid", "%thread", "%lane", "%blocknumber", "%m0", "%m1"]
        return "\n".join(
            [
                ".version 8.8",
                ".target sm_100",
                ".address_size 64",
                f".const .align 8 .b32 table[64] = {{{table}}};",
                f".global .align 1 .b8 format[{len(_FORMAT)}] = {{{characters}}};",
                ".extern .func (.param .b32 printed_count) vprintf (.param .b64 p, .param .b64 q);",
                ".extern .shared .align 16 .b8 copied[];",
                *self._module,
                f".visible .entry k({', '.join(parameters)})",
                "{",
                *map(_declaration, REGISTERS),
                f".reg .b64 {', '.join('%' + base for base in bases)};",
                f".reg .b32 {', '.join(words)};",
                ".reg .b32 %t<6>; .reg .b64 %a<3>; .reg .b64 %u<2>;",
                ".reg .f32 %e<1>; .reg .pred %q;",
                f".shared .align 16 .b32 words[{SHARED_WORDS}];",
                f".shared .align 16 .f32 floats[{SHARED_FLOATS}];",
                f".shared .align 16 .b32 counts[{2 * SHARED_SUMS}];",
                f".shared .align 16 .b32 raced[{SHARED_SUMS}];",
                f".shared .align 16 .b64 exchanged[{max(self._block_slots, 32)}];",
                ".local .align 16 .b8 local[64];",
                ".local .align 8 .b8 printed[8];",
                *self._lines,
                "}",
                "",
            ]
        )


# --- Faults ------------------------------------------------------------------------------------


def _by_one_thread(*lines: str) -> Callable[[_Writer], None]:
    """A fault of one thread of one block; it stands in line 7 of the source."""

    def emit(writer: _Writer) -> None:
        writer.emit_fault(lines, one=True)

    return emit


def _by_all(*lines: str) -> Callable[[_Writer], None]:
    """A fault of all threads."""

    def emit(writer: _Writer) -> None:
        writer.emit_fault(lines, one=False)

    return emit


_PAST_INPUT = 4 * INPUT_ELEMENTS + MARGIN_BYTES
_FAULTS: tuple[Callable[[_Writer], None], ...] = (
    _by_one_thread(f"ld.global.u32 %r0, [%in_r+{_PAST_INPUT}];"),
    _by_one_thread(f"st.global.v2.u32 [%in_r+{-MARGIN_BYTES - 8}], {{%r0, %r1}};"),
    _by_one_thread("mov.u64 %a0, 0;", "st.u32 [%a0+16], %r0;"),
    _by_one_thread("mov.u64 %a0, 20015998343868;", "ld.global.u32 %r0, [%a0];"),
    _by_one_thread("ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in_r+4];"),
    _by_all("mul.wide.u32 %a0, %lane, 2;", "add.s64 %a0, %own, %a0;", "st.global.u32 [%a0], %r0;"),
    _by_one_thread("red.global.add.u64 [%sums_add+4], %l0;"),
    _by_one_thread("ld.shared.u32 %r0, [words+1048576];"),
    _by_all("mul.wide.u32 %a0, %thread, 64;", "ld.shared.u16 %h0, [%a0+-64];"),
    _by_one_thread("mov.u64 %a0, exchanged;", "atom.shared.add.u32 %r0, [%a0+2], 1;"),
    _by_one_thread("mul.wide.u32 %a0, %gid, 0;", "st.local.u64 [%a0+4096], %l0;"),
    _by_all("ld.const.u32 %r0, [table+256];"),
    _by_one_thread("mov.u64 %a0, table;", "cvta.const.u64 %a0, %a0;", "st.u32 [%a0], %r0;"),
    _by_one_thread("trap;"),
    _by_all("trap;"),
)
"""What ends the faulting programs, by their number."""


def _declaration(kind: str) -> str:
    """The declaration of all registers of a kind."""
    prefix = register(kind, 0).removesuffix("0")
    return f".reg .{TYPES[kind]} {prefix}<{REGISTERS[kind]}>;"


def _volume(extents: Dim3) -> int:
    return extents[0] * extents[1] * extents[2]


def _first_value(kind: str, number: int, arguments: str) -> str:
    """Sets a register of a function, from its arguments where one is of the kind."""
    to, at = register(kind, number), arguments.find(kind)
    if kind == "r" and at >= 0:
        return f"mad.lo.u32 {to}, %arg{at}, {2 * number + 1}, {number};"
    if kind == "r":
        return f"mov.u32 {to}, {77 * number};"
    if kind == "l" and at >= 0:
        return f"add.s64 {to}, %arg{at}, {number};"
    if kind == "l":
        return f"mul.wide.s32 {to}, %r{number}, {1000003 + number};"
    if kind == "h":
        return f"cvt.u16.u32 {to}, %r{number};"
    if kind == "f" and at >= 0:
        return f"mul.f32 {to}, %arg{at}, {FLOAT_LITERALS['f'][2 + number % 2]};"
    if kind == "f":
        return f"cvt.rn.f32.s32 {to}, %r{number};"
    return f"setp.lt.s32 {to}, %r{number}, {1000 * number};"


_EXPONENTS = {"f16": (10, 15, 6), "bf16": (7, 127, 10), "f32": (23, 127, 12), "f64": (52, 1023, 30)}
"""Bits of the fraction, the exponent of 1, and how far from it most numbers are."""


def _element(name: str, source: random.Random) -> bytes:
    """The bytes of an input element: mostly of moderate size, at times an edge."""
    bits = 16 if name == "bf16" else int(name[1:])
    if name[0] == "u":
        small = source.randrange(3)
        value = source.randrange(64) if small == 0 else source.getrandbits(bits)
        return value.to_bytes(bits // 8, "little")
    fraction, one, reach = _EXPONENTS[name]
    exponent = one + source.randint(-reach, reach)
    if source.randrange(16) == 0:
        exponent = source.choice((0, 0, 1, 2 * one + 1, 2 * one))
    mantissa = source.getrandbits(fraction) if source.randrange(6) else 0
    value = source.getrandbits(1) << (bits - 1) | exponent << fraction | mantissa
    return value.to_bytes(bits // 8, "little")
