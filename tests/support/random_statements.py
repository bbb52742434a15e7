"""The statements of random programs; `random_programs` has the rules that they keep."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from random_instructions import (
    EDGE_INTEGERS,
    EDGE_INTEGERS_64,
    FAMILIES,
    FLOAT_LITERALS,
    INTEGER_KINDS,
    WIDTH_BYTES,
    Form,
)

REGISTERS = {"r": 8, "l": 4, "h": 3, "f": 6, "d": 3, "x": 3, "y": 3, "X": 2, "Y": 2, "p": 5}
"""How many registers a program computes with, by kind."""
TYPES = {"r": "b32", "l": "b64", "h": "b16", "f": "f32", "d": "f64", "p": "pred"}
TYPES |= {"x": "b16", "y": "b16", "X": "b32", "Y": "b32"}

MARGIN_BYTES = 64  # of an input on either side of what masked addresses reach
INPUT_ELEMENTS = 256
INPUTS = {"r": "u32", "l": "u64", "h": "u16", "f": "f32", "d": "f64", "x": "f16", "y": "bf16"}
"""The inputs: an array by the kind of its elements, named `in_` and the kind."""

OWN_BYTES = 64  # per thread, in the array `own`
ROWS = 6  # of the array `rows`, each with 16 bytes per thread
SUMS = 32  # elements of each array that atomics add to
WHOLE_SUMS = ("add", "and", "or", "xor", "min", "max", "add64", "inc")
"""The parts of the array `sums_add`: in each, atomics of one kind alone come together."""
SHARED_WORDS, SHARED_FLOATS, SHARED_SUMS = 256, 128, 16


class Statements:
    """Writes statements, one after another.

    A random program is made of them, and of a frame that declares and sets the registers.
    """

    def __init__(self, source: random.Random, threads: int, blocks: int) -> None:
        """Begin a program for blocks of so many threads."""
        self._random, self._threads, self._blocks = source, threads, blocks
        self._warps = -(-threads // 32)
        self._block_slots = 1 << (threads - 1).bit_length()  # threads, rounded up to a power of two
        self._slots = 1 << (threads * blocks - 1).bit_length()  # of the grid, likewise
        self._lines: list[str] = []
        self._outlined: list[str] = []  # arms of branches that are laid out behind the kernel's end
        self._counters: list[str] = []  # registers of loops
        self._functions: list[tuple[str, str, str]] = []  # name, kind of result, kinds of arguments
        self._labels = 0
        self._row_widths: dict[int, int] = {}  # bytes of an element, by row in use
        self._row_factors: dict[int, int] = {}  # by which the rows are permuted
        self._features: set[str] = set()
        self._ordered = self._races = False
        # What the program may do: instructions, statements, those of whole blocks, and how deep.
        self._families: list[str] = []
        self._menu: list[Callable[[], None]] = []
        self._together: list[Callable[[], None]] = []
        self._deepest = 1

    # --- Choices and small parts ----------------------------------------------------------

    def _one_in(self, count: int) -> bool:
        return self._random.randrange(count) == 0

    def _pick(self, kind: str) -> str:
        """A register of a kind."""
        return register(kind, self._random.randrange(REGISTERS[kind]))

    def _vector(self, kind: str, count: int) -> str:
        """Different registers of a kind, as a vector."""
        numbers = self._random.sample(range(REGISTERS[kind]), count)
        return f"{{{', '.join(register(kind, number) for number in numbers)}}}"

    def _source(self, kind: str) -> str:
        """A source operand of a kind: a register or, at times, a literal."""
        draw = self._random
        if kind == "P":
            return draw.choice(("", "!")) + self._pick("p")
        if kind == "s":
            edge = draw.choice((0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255))
            return draw.choice((self._pick("r"), str(edge), str(draw.randrange(70))))
        if kind == "b":
            return str(draw.choice((0, 1, 31, 32, draw.randrange(33), draw.randrange(66))))
        if kind == "#":
            return str(draw.randrange(256))
        if kind in INTEGER_KINDS and self._one_in(4):
            return self._integer(kind)
        if kind in FLOAT_LITERALS and self._one_in(8):
            return draw.choice(FLOAT_LITERALS[kind])
        return self._pick(kind)

    def _integer(self, kind: str) -> str:
        if kind == "l":
            return str(self._random.choice(EDGE_INTEGERS_64))
        value = self._random.choice(EDGE_INTEGERS)
        return str(value % 1000 if kind == "h" else value)

    def _emit(self, *lines: str) -> None:
        self._lines += lines

    def _label(self) -> str:
        self._labels += 1
        return f"$L{self._labels}"

    def _guard(self) -> str:
        """The guard of an instruction; mostly none."""
        if not self._one_in(5):
            return ""
        return f"@{self._random.choice(('', '!'))}{self._pick('p')} "

    def _feature(self, name: str) -> None:
        self._features.add(name)

    def _index(self, size: int) -> str:
        """A register with an index below a power of two, the same for neighbours or scattered."""
        how = self._random.randrange(6)
        if how == 0:
            self._emit(f"and.b32 %t0, %gid, {size - 1};")
        elif how == 1:
            factor = self._random.choice((2, 3, 4, 5, 8, 17, 32))
            self._emit(f"mul.lo.u32 %t0, %gid, {factor}; and.b32 %t0, %t0, {size - 1};")
        elif how == 2:
            down = self._random.randrange(1, 6)
            self._emit(f"shr.u32 %t0, %gid, {down}; and.b32 %t0, %t0, {size - 1};")
        elif how == 3:
            self._emit(f"mov.u32 %t0, {self._random.randrange(size)};")
        elif how == 4:
            self._emit(f"xor.b32 %t0, %lane, {self._pick('r')}; and.b32 %t0, %t0, {size - 1};")
        else:
            self._emit(f"and.b32 %t0, {self._pick('r')}, {size - 1};")
        return "%t0"

    # --- Statements that any thread may execute ---------------------------------------------

    def _compute(self) -> None:
        family = self._random.choice(self._families)
        form: Form = self._random.choice(self._random.choice(FAMILIES[family]))
        sources = ", ".join(self._source(kind) for kind in form.of)
        self._emit(f"{self._guard()}{form.opcode} {self._pick(form.to)}, {sources};")

    def _several(self, least: int = 1, most: int = 5) -> None:
        for _ in range(self._random.randint(least, most)):
            self._compute()

    def _carry_chain(self) -> None:
        a, b, c = (self._pick("r") for _ in range(3))
        name = self._random.choice(("add", "sub"))
        self._emit(f"{name}.cc.u32 {a}, {b}, {self._source('r')};")
        self._emit(f"{name}c.cc.u32 {b}, {c}, {self._source('r')};")
        self._emit(f"{name}c.u32 {c}, {a}, {self._source('r')};")

    def _opposite_predicates(self) -> None:
        first, second = self._random.sample(range(REGISTERS["p"]), 2)
        compare = self._random.choice(("lt.s32", "ne.u32", "ge.and.s32", "eq.xor.u32"))
        third = f", {self._source('P')}" if compare.count(".") == 2 else ""
        sources = f"{self._source('r')}, {self._pick('r')}{third}"
        self._emit(f"setp.{compare} %p{first}|%p{second}, {sources};")

    def _pack(self) -> None:
        r, h, x, y, pair = (self._pick(kind) for kind in "rhxyX")
        self._emit(
            self._random.choice(
                (
                    f"mov.b64 {self._pick('l')}, {{{r}, {self._pick('r')}}};",
                    f"mov.b64 {{{r}, _}}, {self._pick('l')};",
                    f"mov.b32 {r}, {{{h}, {self._pick('h')}}};",
                    f"mov.b32 {{{h}, %h0}}, {r};",
                    f"mov.b32 {pair}, {{{x}, {self._pick('x')}}};",
                    f"mov.b32 {{{x}, _}}, {pair};",
                    f"mov.b32 {self._pick('Y')}, {{{y}, {self._pick('y')}}};",
                    f"mov.b32 {{_, {y}}}, {self._pick('Y')};",
                )
            )
        )

    def _special(self) -> None:
        names = "tid.x tid.y tid.z ntid.x ntid.y ctaid.x ctaid.y ctaid.z nctaid.x nctaid.z laneid"
        names += " warpid nwarpid lanemask_eq lanemask_lt lanemask_le lanemask_gt lanemask_ge smid"
        name = self._random.choice(names.split())
        self._emit(f"{self._guard()}mov.u32 {self._pick('r')}, %{name};")

    def _clock(self) -> None:
        """Two readings of a clock, of which only the order is used."""
        self._feature("clock")
        self._emit("mov.u64 %u0, %clock64;")
        self._several(1, 2)
        self._emit(f"mov.u64 %u1, %clock64; setp.gt.u64 {self._pick('p')}, %u1, %u0;")

    def _load_input(self) -> None:
        kind = self._random.choice("rrrlhffdxy")
        width = WIDTH_BYTES[kind]
        self._emit(
            f"mul.wide.u32 %a0, {self._index(INPUT_ELEMENTS)}, {width};",
            f"add.s64 %a0, %in_{kind}, %a0;",
        )
        if kind in "rl" and self._one_in(3):
            self._load_integers("global", "%a0", width)
            return
        if kind in "rlf" and self._one_in(3):  # a vector: its address must be aligned to it
            self._load_vector(kind, "%a0", self._random.choice((".global", "")))
            return
        offset = width * self._random.randint(-MARGIN_BYTES // width, MARGIN_BYTES // width - 1)
        space = self._random.choice(("", ".global", ".global", ".global.nc", ".global.cg"))
        kinds = {"f": "f32", "d": "f64"}.get(kind, f"b{8 * width}")
        self._emit(f"{self._guard()}ld{space}.{kinds} {self._pick(kind)}, [%a0+{offset}];")

    def _load_integers(self, space: str, address: str, aligned: int) -> None:
        """A load of a narrower or wider integer than its register."""
        types = {"u8": "h", "s8": "r", "u16": "r", "s16": "l", "u32": "l", "s32": "l", "b8": "r"}
        name = self._random.choice([t for t in types if int(t[1:]) <= 8 * aligned])
        offset = int(name[1:]) // 8 * self._random.randrange(aligned // (int(name[1:]) // 8))
        target = self._pick(types[name])
        self._emit(f"{self._guard()}ld.{space}.{name} {target}, [{address}+{offset}];")

    def _load_vector(self, kind: str, address: str, space: str) -> None:
        self._feature("vectors")
        width = WIDTH_BYTES[kind]
        counts = [count for count in (2, 4) if count * width <= 16]
        if kind == "r" and space == ".global":
            counts.append(8)
        count = self._random.choice(counts)
        targets, size = self._vector(kind, count), count * width
        offset = size * self._random.randint(-MARGIN_BYTES // size, MARGIN_BYTES // size - 1)
        kinds = "f32" if kind == "f" else f"b{8 * width}"
        self._emit(f"and.b64 {address}, {address}, {-size};")
        self._emit(f"{self._guard()}ld{space}.v{count}.{kinds} {targets}, [{address}+{offset}];")

    def _store_own(self) -> None:
        """A store to the thread's own bytes, and at times a load of them."""
        kind = self._random.choice("rrlh")
        width = self._random.choice([w for w in (1, 2, 4, 8) if w <= WIDTH_BYTES[kind]])
        offset = width * self._random.randrange(OWN_BYTES // width)
        space = self._random.choice(("", ".global", ".global", ".global.cs"))
        stored = f"st{space}.b{8 * width} [%own+{offset}], {self._pick(kind)};"
        if kind in "rl" and self._one_in(3):
            self._feature("vectors")
            size = 16 if self._one_in(2) else 2 * WIDTH_BYTES[kind]
            count = size // WIDTH_BYTES[kind]
            values = ", ".join(self._pick(kind) for _ in range(count))
            offset = size * self._random.randrange(OWN_BYTES // size)
            stored = f"st{space}.v{count}.b{8 * WIDTH_BYTES[kind]} [%own+{offset}], {{{values}}};"
        self._emit(self._guard() + stored)
        if self._one_in(2):
            offset = 4 * self._random.randrange(OWN_BYTES // 4)
            self._emit(f"{self._guard()}ld.global.u32 {self._pick('r')}, [%own+{offset}];")

    def _store_row(self) -> None:
        """A store of neighbouring elements by neighbouring threads, permuted or with a stride."""
        row = self._random.randrange(ROWS)
        width = self._row_widths.setdefault(row, self._random.choice((1, 2, 4, 8, 16)))
        factor = self._random.choice((1, 1, 3, 5, 17)) if row % 2 else 1
        factor = self._row_factors.setdefault(row, factor)
        self._emit(
            f"mul.lo.u32 %t0, %gid, {factor}; and.b32 %t0, %t0, {self._slots - 1};",
            f"mad.wide.u32 %a0, %t0, {width}, %rows;",
        )
        at = f"[%a0+{row * 16 * self._slots}]"
        if width == 16:
            stored = f"st.global.v2.b64 {at}, {{{self._pick('l')}, {self._pick('l')}}};"
        else:
            kind = self._random.choice([k for k in "rlh" if WIDTH_BYTES[k] >= width])
            stored = f"st.global.b{8 * width} {at}, {self._pick(kind)};"
        self._emit(self._guard() + stored)

    def _local(self) -> None:
        self._feature("local")
        self._emit(f"and.b32 %t0, {self._pick('r')}, 15; mul.wide.u32 %a0, %t0, 4;")
        self._emit("mov.u64 %a1, local; add.s64 %a0, %a1, %a0;")
        generic = self._one_in(3)
        if generic:
            self._emit("cvta.local.u64 %a0, %a0;")
        space = "" if generic else ".local"
        self._emit(f"{self._guard()}st{space}.u32 [%a0], {self._pick('r')};")
        byte, wide = self._random.randrange(64), 16 * self._random.randrange(4)
        self._emit(f"{self._guard()}ld.local.u8 {self._pick('h')}, [local+{byte}];")
        self._emit(f"ld.local.v4.u32 {self._vector('r', 4)}, [local+{wide}];")

    def _constant(self) -> None:
        self._feature("const")
        self._emit(f"mul.wide.u32 %a0, {self._index(64)}, 4;")
        self._emit("mov.u64 %a1, table; add.s64 %a0, %a1, %a0;")
        if self._one_in(3):
            self._emit("cvta.const.u64 %a0, %a0;")
            self._emit(f"{self._guard()}ld.u32 {self._pick('r')}, [%a0];")
        else:
            self._emit(f"{self._guard()}ld.const.u32 {self._pick('r')}, [%a0];")
        self._emit(f"ld.const.v2.u32 {{%r0, %r1}}, [table+{8 * self._random.randrange(32)}];")

    def _parameter(self) -> None:
        name = f"s{self._random.randrange(3)}"
        self._emit(f"{self._guard()}ld.param.u32 {self._pick('r')}, [{name}];")

    def _load_shared(self) -> None:
        if self._one_in(3):
            self._emit(f"mul.wide.u32 %a0, {self._index(SHARED_FLOATS)}, 4;")
            self._emit("mov.u64 %a1, floats; add.s64 %a0, %a1, %a0;")
            self._emit(f"{self._guard()}ld.shared.f32 {self._pick('f')}, [%a0];")
            return
        self._emit(f"mul.wide.u32 %a0, {self._index(SHARED_WORDS // 2)}, 4;")
        self._emit("mov.u64 %a1, words; add.s64 %a0, %a1, %a0;", *self._mixed_address())
        offset = self._random.randrange(8)
        if self._one_in(3):
            self._emit("and.b64 %a0, %a0, -16;")
            address = f"[%a0+{16 * offset}]"
            self._emit(f"{self._guard()}ld.shared.v4.u32 {self._vector('r', 4)}, {address};")
        elif self._one_in(3):
            self._emit("and.b64 %a0, %a0, -8;")
            self._load_integers("shared", "%a0", 8)
        else:
            self._emit(f"{self._guard()}ld.shared.u32 {self._pick('r')}, [%a0+{4 * offset}];")

    def _narrow(self) -> None:
        """Bytes and half words at places that are no multiple of a word, with an offset."""
        self._feature("narrow")
        width = self._random.choice((1, 2))
        kind, to = self._random.choice((("u", "h"), ("s", "r"), ("u", "r")))
        name, offset = f"{kind}{8 * width}", width * self._random.randrange(-8, 9)
        shared = self._one_in(2)
        base, space = ("%a1", "shared") if shared else ("%in_r", "global")
        self._emit(f"mul.wide.u32 %a0, {self._index(256)}, {width};")
        self._emit("mov.u64 %a1, words;", f"add.s64 %a0, {base}, %a0; add.s64 %a0, %a0, 16;")
        self._emit(f"{self._guard()}ld.{space}.{name} {self._pick(to)}, [%a0+{offset}];")
        offset = width * self._random.randrange(32 // width)
        self._emit(f"{self._guard()}st.global.b{8 * width} [%own+{offset}], {self._pick('h')};")

    def _mixed_address(self) -> Sequence[str]:
        """At times a generic load, which goes to shared memory for some threads only."""
        if not self._one_in(4):
            return ()
        self._feature("generic")
        return (
            "cvta.shared.u64 %a1, %a0;",
            f"selp.b64 %a1, %a1, %in_r, {self._pick('p')};",
            f"ld.u32 {self._pick('r')}, [%a1];",
            "isspacep.shared %p0, %a1;",
        )

    # --- Atomics ----------------------------------------------------------------------------

    def _reduce_global(self) -> None:
        """An atomic that adds up whole numbers, so that the order is all the same."""
        self._feature("atomics")
        name = self._random.choice(("add", "and", "or", "xor", "min", "max", "add64", "inc"))
        self._emit(f"mul.wide.u32 %a0, {self._index(SUMS)}, 8; add.s64 %a0, %sums_{name}, %a0;")
        space = self._random.choice(("", ".global"))
        word, value = f"{'b' if name in ('and', 'or', 'xor') else 'u'}32", self._pick("r")
        if name == "add64":
            name, word, value = "add", "u64", self._pick("l")
        elif name == "inc":
            value = "12345"
        self._emit(f"{self._guard()}red{space}.{name}.{word} [%a0], {value};")

    def _ordered_atomic(self) -> None:
        """An atomic whose result is used, or that adds floating-point numbers."""
        self._feature("atomics with results")
        self._ordered = True
        self._emit(f"mul.wide.u32 %a0, {self._index(SUMS)}, 8; add.s64 %a0, %sums_mix, %a0;")
        guard, word, long = self._guard(), self._pick("r"), self._pick("l")
        choice = self._random.randrange(8)
        if choice == 0:
            name = self._random.choice(("add.u32", "min.s32", "max.u32", "exch.b32", "xor.b32"))
            self._emit(f"{guard}atom.global.{name} {word}, [%a0], {self._source('r')};")
        elif choice == 1:
            name, bound = self._random.choice(("inc", "dec")), self._random.choice((1, 2, 7, 1000))
            self._emit(f"{guard}atom.global.{name}.u32 {word}, [%a0], {bound};")
        elif choice == 2:
            old = self._random.choice(("0", "1", self._pick("r")))
            self._emit(f"{guard}atom.global.cas.b32 {word}, [%a0], {old}, {self._pick('r')};")
        elif choice == 3:
            name = self._random.choice(("add.u64", "max.s64", "exch.b64", "or.b64"))
            self._emit(f"{guard}atom.{name} {long}, [%a0], {self._source('l')};")
        elif choice == 4:
            values = f"{self._pick('l')}, {self._pick('l')}"
            self._emit(f"{guard}atom.global.cas.b64 {long}, [%a0], {values};")
        elif choice == 5:
            self._emit("add.s64 %a0, %a0, %sums_to_f;")
            self._emit(f"{guard}atom.global.add.f32 {self._pick('f')}, [%a0], {self._source('f')};")
        elif choice == 6:
            self._emit("add.s64 %a0, %a0, %sums_to_d;")
            self._emit(f"{guard}red.global.add.f64 [%a0], {self._source('d')};")
        else:
            self._emit("add.s64 %a0, %a0, %sums_to_x;")
            halves = f"{self._pick('x')}, [%a0], {self._pick('x')}"
            self._emit(f"{guard}atom.global.add.noftz.f16 {halves};")
            self._emit(f"red.global.add.noftz.f16x2 [%a0], {self._pick('X')};")

    def _reduce_shared(self) -> None:
        self._feature("shared atomics")
        self._emit(f"mul.wide.u32 %a0, {self._index(SHARED_SUMS)}, 4;")
        self._emit("mov.u64 %a1, counts; add.s64 %a0, %a1, %a0;")
        if self._one_in(3):
            self._ordered = True
            name = self._random.choice(("add.u32", "exch.b32", "max.u32", "inc.u32"))
            more = f"[%a0+{4 * SHARED_SUMS}], {self._source('r')}"
            self._emit(f"{self._guard()}atom.shared.{name} {self._pick('r')}, {more};")
            more = f"[%a0+{4 * SHARED_SUMS}], 0, {self._pick('r')}"
            self._emit(f"{self._guard()}atom.shared.cas.b32 {self._pick('r')}, {more};")
        elif self._one_in(4):
            self._emit("cvta.shared.u64 %a0, %a0;")
            self._emit(f"{self._guard()}red.add.u32 [%a0], {self._pick('r')};")
        else:
            self._emit(f"{self._guard()}red.shared.add.u32 [%a0], {self._pick('r')};")

    # --- Warps ------------------------------------------------------------------------------

    def _warp(self) -> None:
        """Instructions of the lanes that execute them now, or of some of these."""
        self._feature("warps")
        self._emit("activemask.b32 %m0;")
        if self._one_in(3):  # two or more sets of lanes, each with its own mask
            bits = self._random.choice((1, 2, 4, 16))
            pattern = sum(1 << lane for lane in range(32) if lane & bits)
            self._emit(
                f"and.b32 %t0, %lane, {bits}; setp.ne.u32 %q, %t0, 0;",
                f"selp.b32 %t1, {pattern}, {~pattern & 0xFFFFFFFF}, %q; and.b32 %m0, %m0, %t1;",
            )
        for _ in range(self._random.randint(1, 3)):
            self._exchange_in_warp("%m0")

    def _exchange_in_warp(self, mask: str) -> None:
        r, p = self._pick("r"), self._pick("p")
        choice = self._random.randrange(9)
        if choice <= 2:
            self._emit(self._shuffle(self._random.choice("rrf"), mask))
        elif choice == 3:
            name = self._random.choice(("all", "any", "uni"))
            self._emit(f"vote.sync.{name}.pred {p}, {self._source('P')}, {mask};")
        elif choice == 4:
            self._emit(f"vote.sync.ballot.b32 {r}, {self._source('P')}, {mask};")
        elif choice == 5:
            self._emit(f"and.b32 %t0, {self._pick('r')}, 3; match.any.sync.b32 {r}, %t0, {mask};")
        elif choice == 6:
            self._emit(f"match.all.sync.b64 {r}|{p}, {self._pick('l')}, {mask};")
        elif choice == 7:
            name = self._random.choice(("add.u32", "min.s32", "max.u32", "and.b32", "xor.b32"))
            self._emit(f"redux.sync.{name} {r}, {self._pick('r')}, {mask};")
        else:
            self._emit(f"elect.sync {r}|{p}, {mask};")

    def _shuffle(self, kind: str, mask: str) -> str:
        mode, clamp = self._random.choice(
            (
                *(("up", 0), ("down", 31), ("bfly", 31), ("idx", 31)),
                *(("up", 0x1800), ("down", 0x1C1F), ("bfly", 0x101F), ("idx", 0x181F)),
            )
        )
        lane = (
            self._pick("r") if self._one_in(4) else str(self._random.choice((1, 2, 3, 8, 16, 31)))
        )
        pair = f"|{self._pick('p')}" if self._one_in(2) else ""
        target, value = self._pick(kind), self._pick(kind)
        return f"shfl.sync.{mode}.b32 {target}{pair}, {value}, {lane}, {clamp}, {mask};"

    def _joined_arms(self) -> None:
        """Both arms of a branch execute one opcode, with the mask of all lanes that come here."""
        self._feature("joined arms")
        arm, end = self._label(), self._label()
        choice = self._random.randrange(6)
        self._emit("activemask.b32 %m1;", f"@{self._pick('p')} bra {arm};")
        for number in range(2):
            self._several(0, 2)
            to, value, p = self._pick("r"), self._pick("r"), self._pick("p")
            lane = self._random.randrange(32)
            same_opcode = (
                f"shfl.sync.bfly.b32 {to}, {value}, {lane}, 31, %m1;",
                f"shfl.sync.idx.b32 {to}|{p}, {value}, {lane}, 31, %m1;",
                f"shfl.sync.down.b32 {to}, {value}, {lane}, 31, %m1;",
                f"vote.sync.ballot.b32 {to}, {p}, %m1;",
                f"redux.sync.add.u32 {to}, {value}, %m1;",
                f"elect.sync {to}|{p}, %m1;",
            )
            self._emit(same_opcode[choice])
            self._several(0, 2)
            if number == 0:
                self._emit(f"bra {end};", f"{arm}:")
        self._emit(f"{end}:")

    # --- Control ----------------------------------------------------------------------------

    def _branch(self, depth: int) -> None:
        other, end = self._label(), self._label()
        guard = self._random.choice(("", "!")) + self._pick("p")
        has_else = self._one_in(2)
        self._emit(f"@{guard} bra {other if has_else else end};")
        self._statements(depth + 1)
        if has_else:
            self._emit(f"bra{self._random.choice(('', '.uni'))} {end};", f"{other}:")
            self._statements(depth + 1)
        self._emit(f"{end}:")

    def _outlined_branch(self, depth: int) -> None:
        """An arm that lies behind the end of the kernel, as compilers place an unlikely one."""
        self._feature("outlined")
        arm, join = self._label(), self._label()
        self._emit(f"@{self._pick('p')} bra {arm};")
        self._statements(depth + 1)
        self._emit(f"{join}:")
        kept, self._lines = self._lines, []
        self._several(1, 3)
        self._outlined += [f"{arm}:", *self._lines, f"bra {join};"]
        self._lines = kept

    def _loop(self, depth: int) -> None:
        """A loop whose number of iterations differs from thread to thread."""
        count, last = f"%c{len(self._counters)}", f"%n{len(self._counters)}"
        self._counters += [count, last]
        head, end, next_one = self._label(), self._label(), self._label()
        most = self._random.choice((1, 3, 7)) if depth < 2 else 1
        if self._one_in(3):
            self._emit(f"mov.u32 {last}, {most};")
        else:
            self._emit(f"and.b32 {last}, {self._pick('r')}, {most};")
        self._emit(f"mov.u32 {count}, 0;", f"{head}:")
        at_top = self._one_in(2)
        if at_top:
            self._emit(f"setp.ge.u32 %q, {count}, {last};", f"@%q bra {end};")
        self._statements(depth + 1, most=4)
        if self._one_in(4):
            self._feature("break")
            self._emit(f"@{self._pick('p')} bra {end};")
            self._several(1, 2)
        if self._one_in(4):
            self._feature("continue")
            self._emit(f"@!{self._pick('p')} bra {next_one};")
            self._several(1, 2)
        self._emit(f"{next_one}:", f"add.u32 {count}, {count}, 1;")
        if at_top:
            self._emit(f"bra.uni {head};")
        else:
            self._emit(f"setp.lt.u32 %q, {count}, {last};", f"@%q bra {head};")
        self._emit(f"{end}:")

    def _switch(self, depth: int) -> None:
        self._feature("brx")
        count = self._random.randint(2, 4)
        labels, end, table = [self._label() for _ in range(count)], self._label(), self._label()
        self._emit(f"rem.u32 %t0, {self._pick('r')}, {count};")
        self._emit(f"{table}: .branchtargets {', '.join(labels)};", f"brx.idx %t0, {table};")
        for number, label in enumerate(labels):
            self._emit(f"{label}:")
            self._several(1, 3)
            if number == 0 and depth < 2:
                self._statements(depth + 2, most=2)
            if number < count - 1 and not self._one_in(4):  # else falls through
                self._emit(f"bra {end};")
        self._emit(f"{end}:")

    def _early_exit(self) -> None:
        self._feature("early exit")
        p = self._random.randrange(REGISTERS["p"])
        self._emit(f"and.b32 %t0, {self._pick('r')}, 15; setp.eq.u32 %p{p}, %t0, 3;")
        self._emit(f"@%p{p} {self._random.choice(('exit', 'ret'))};")

    def _call(self) -> None:
        name, result, arguments = self._random.choice(self._functions)
        self._feature("calls")
        self._labels += 1
        parameters = [f"p{self._labels}_{number}" for number in range(len(arguments))]
        self._emit("{", f".param .{TYPES[result]} back{self._labels};")
        for parameter, kind in zip(parameters, arguments, strict=True):
            self._emit(f".param .{TYPES[kind]} {parameter};")
            self._emit(f"st.param.{TYPES[kind]} [{parameter}+0], {self._pick(kind)};")
        back = f"back{self._labels}"
        self._emit(f"call ({back}), {name}, ({', '.join(parameters)});")
        self._emit(f"ld.param.{TYPES[result]} {self._pick(result)}, [{back}+0];", "}")

    def _print(self) -> None:
        self._feature("printf")
        self._labels += 1
        values, place, text = (f"{word}{self._labels}" for word in ("v", "w", "x"))
        p = self._random.randrange(REGISTERS["p"])
        behind = self._label()
        self._emit(f"and.b32 %t0, %gid, 31; setp.ne.u32 %p{p}, %t0, {self._random.randrange(32)};")
        self._emit(f"@%p{p} bra {behind};", "{")
        self._emit(f"st.local.u32 [printed], {self._pick('r')}; st.local.u32 [printed+4], %gid;")
        self._emit("mov.u64 %a0, printed; cvta.local.u64 %a0, %a0;")
        self._emit("mov.u64 %a1, format; cvta.global.u64 %a1, %a1;")
        self._emit(f".param .b64 {text}; st.param.b64 [{text}+0], %a1;")
        self._emit(f".param .b64 {values}; st.param.b64 [{values}+0], %a0;")
        self._emit(f".param .b32 {place};", f"call ({place}), vprintf, ({text}, {values});", "}")
        self._emit(f"{behind}:")

    # --- Statements that the threads of a block execute together ----------------------------

    def _exchange(self) -> None:
        """Each thread stores to a place of its own, and loads another's behind a barrier."""
        self._feature("exchange")
        wide = self._one_in(2)
        kind, size = ("l", 8) if wide else ("r", 4)
        factor = self._random.choice((1, 1, 3, 5))
        slots = self._block_slots
        self._emit(
            f"mul.lo.u32 %t0, %thread, {factor}; and.b32 %t0, %t0, {slots - 1};",
            f"mul.wide.u32 %a0, %t0, {size}; mov.u64 %a1, exchanged; add.s64 %a0, %a1, %a0;",
            f"st.shared.u{8 * size} [%a0], {self._pick(kind)};",
            "bar.sync 0;",
        )
        self._emit(f"mul.wide.u32 %a0, {self._index(slots)}, {size};")
        self._emit("mov.u64 %a1, exchanged; add.s64 %a0, %a1, %a0;")
        self._emit(f"{self._guard()}ld.shared.u{8 * size} {self._pick(kind)}, [%a0];")
        self._emit("bar.sync 0;")

    def _tree_sum(self) -> None:
        """The tree that adds up a block's values: fewer threads in each step."""
        self._feature("tree")
        self._emit(
            "mul.wide.u32 %a0, %thread, 4; mov.u64 %a1, exchanged; add.s64 %a0, %a1, %a0;",
            f"st.shared.u32 [%a0], {self._pick('r')};",
            f"mov.u32 %t2, {self._block_slots // 2};",
        )
        head, behind = self._label(), self._label()
        self._emit(
            f"{head}:",
            "bar.sync 0;",
            "add.u32 %t0, %thread, %t2; setp.lt.u32 %q, %thread, %t2;",
            f"setp.lt.and.u32 %q, %t0, {self._threads}, %q;",
            f"@!%q bra {behind};",
            "mul.wide.u32 %a2, %t2, 4; add.s64 %a2, %a0, %a2;",
            "ld.shared.u32 %t0, [%a2]; ld.shared.u32 %t1, [%a0];",
            "add.u32 %t0, %t0, %t1; st.shared.u32 [%a0], %t0;",
            f"{behind}:",
            "shr.u32 %t2, %t2, 1; setp.ne.u32 %q, %t2, 0;",
            f"@%q bra {head};",
            "bar.sync 0;",
            f"ld.shared.u32 {self._pick('r')}, [exchanged];",
            "bar.sync 0;",
        )

    def _whole_warps(self) -> None:
        """Shuffles and votes that name all lanes of a warp, those too that are no threads."""
        self._feature("whole warps")
        for _ in range(self._random.randint(1, 3)):
            self._exchange_in_warp("-1")

    def _vote_of_block(self) -> None:
        self._feature("bar.red")
        if self._one_in(2):
            self._emit(f"bar.red.popc.u32 {self._pick('r')}, 0, {self._pick('p')};")
        else:
            name = self._random.choice(("and", "or"))
            self._emit(f"bar.red.{name}.pred {self._pick('p')}, 0, {self._pick('p')};")

    def _copy_async(self) -> None:
        self._feature("cp.async")
        size = self._random.choice((4, 8, 16))
        cache = "cg" if size == 16 and self._one_in(2) else "ca"
        filled = self._random.choice(("", "", ", %t1"))
        self._emit(
            "mul.wide.u32 %a0, %thread, 16; mov.u64 %a1, copied; add.s64 %a0, %a1, %a0;",
            f"mul.wide.u32 %a1, {self._index(INPUT_ELEMENTS // 4)}, {size};",
            "add.s64 %a1, %in_r, %a1;",
            f"and.b32 %t1, {self._pick('r')}, {size};",
            f"{self._guard()}cp.async.{cache}.shared.global [%a0], [%a1], {size}{filled};",
            "cp.async.commit_group;",
            self._random.choice(("cp.async.wait_group 0;", "cp.async.wait_all;")),
            "bar.sync 0;",
        )
        self._emit(
            f"mul.wide.u32 %a0, {self._index(self._block_slots)}, 16;",
            "mov.u64 %a1, copied; add.s64 %a0, %a1, %a0;",
            f"ld.shared.v2.u32 {{{self._pick('r')}, %t1}}, [%a0]; xor.b32 %r0, %r0, %t1;",
            "bar.sync 0;",
        )

    def _producers(self) -> None:
        """The first warps arrive at a barrier at which the others wait for what they stored."""
        self._feature("bar.arrive")
        waiting, behind = self._label(), self._label()
        first = 32 * self._random.randrange(1, self._warps)
        number = self._random.randrange(1, 16)
        self._emit(
            "mul.wide.u32 %a0, %thread, 8; mov.u64 %a1, exchanged; add.s64 %a0, %a1, %a0;",
            f"setp.ge.u32 %q, %thread, {first};",
            f"@%q bra {waiting};",
            f"st.shared.u64 [%a0], {self._pick('l')};",
            f"bar.arrive {number}, {32 * self._warps};",
            f"bra {behind};",
            f"{waiting}:",
        )
        self._several(0, 3)
        self._emit(
            f"bar.sync {number}, {32 * self._warps};",
            f"and.b32 %t0, {self._pick('r')}, 31; mul.wide.u32 %a0, %t0, 8;",
            "mov.u64 %a1, exchanged; add.s64 %a0, %a1, %a0;",
            f"ld.shared.u64 {self._pick('l')}, [%a0];",
            f"{behind}:",
            "bar.sync 0;",
        )

    def _pairs_of_warps(self) -> None:
        """Every two warps meet at a barrier of their own, whose number is computed."""
        self._feature("named barriers")
        self._emit(
            "shr.u32 %t0, %thread, 5; shr.u32 %t1, %t0, 1; add.u32 %t1, %t1, 1;",
            "mul.wide.u32 %a0, %thread, 4; mov.u64 %a1, exchanged; add.s64 %a0, %a1, %a0;",
            f"st.shared.u32 [%a0], {self._pick('r')};",
            "bar.sync %t1, 64;",
            "xor.b32 %t0, %thread, 32; mul.wide.u32 %a0, %t0, 4;",
            "add.s64 %a0, %a1, %a0;",
            f"ld.shared.u32 {self._pick('r')}, [%a0];",
            "bar.sync %t1, 64;" if self._one_in(2) else "bar.sync 0;",
            "bar.sync 0;",
        )

    def _race(self) -> None:
        """Threads of a block store and load the same words, with no barrier between."""
        self._feature("races")
        self._races = True
        self._emit(f"mul.wide.u32 %a0, {self._index(SHARED_SUMS)}, 4;")
        self._emit("mov.u64 %a1, raced; add.s64 %a0, %a1, %a0;")
        self._emit(f"{self._guard()}st.shared.u32 [%a0], {self._pick('r')};")
        self._emit(f"{self._guard()}ld.shared.u32 {self._pick('r')}, [%a0];")

    def emit_fault(self, lines: Sequence[str], one: bool) -> None:
        """Write the statements of a fault, of which the last goes wrong, for one thread or all."""
        behind = self._label()
        if one:
            number = self._random.randrange(self._threads * self._blocks)
            self._emit(f"setp.ne.u32 %q, %gid, {number};", f"@%q bra {behind};")
        self._emit(".loc 1 7 1", *lines, ".loc 1 8 1", f"{behind}:")

    # --- Sequences of statements ------------------------------------------------------------

    def _statements(self, depth: int, most: int = 5) -> None:
        """Some statements at a depth of nested branches and loops; 0 for those of all threads."""
        draw = self._random
        for _ in range(draw.randint(1, most)):
            self._several(0, 3)
            draw.choice(self._menu)()
            if depth < self._deepest and draw.randrange(8) < 5 - depth:
                kinds: list[Callable[[int], None]] = [self._branch, self._branch, self._loop]
                kinds += [self._outlined_branch, self._switch]
                draw.choice(kinds)(depth)
            if depth == 0 and self._together and not self._one_in(3):
                draw.choice(self._together)()


def register(kind: str, number: int) -> str:
    """The name of a register: `%xx1` for the second pair of `f16`."""
    return f"%{kind.lower() * (2 if kind.isupper() else 1)}{number}"
