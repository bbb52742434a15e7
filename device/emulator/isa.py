"""The instruction table: one row an opcode, in NVIDIA's own spelling.

`op("fma.rn.{f32,f64}", …)` adds a row for each expansion of the braces; a duplicate raises.
A row says what kind of instruction it is, the types of its destinations and sources, what it
computes over lanes and how many floating-point operations a lane does. The machine knows the
kinds and no opcode. An opcode outside the table is refused before launch.

Types are PTX's (`s32`, `f64`, `pred` …). `{0}` in a type stands for the first brace's choice,
`{1}` for the second's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from memlab.device.emulator import arithmetic
from memlab.device.emulator.memory import WINDOWS
from memlab.device.emulator.parser import TYPE_BYTES

Kind = Literal[
    "lanes", "warp", "load", "store", "atomic", "reduce", "branch", "exit", "barrier", "nothing"
]


@dataclass(frozen=True)
class Row:
    """One instruction's meaning.

    Attributes:
        opcode: As NVIDIA spells it, with the suffixes that matter.
        kind: How the machine carries it out. `lanes`: `function(*sources)` lane by lane.
            `warp`: `function(active, *sources)` with every array shaped (warps, 32).
            `load`, `store`: memory. `atomic`: read, combine by `function(old, *sources)`,
            write, give the old value; `reduce`: the same without it. `nothing`: ordering only.
        to: Types of the destinations.
        of: Types of the sources, addresses left out.
        function: What is computed.
        flops: Floating-point operations a lane: an FMA is two.
        space: State space of a memory access; `generic` where the address says which.
        vector: Elements a lane moves.
        bypass_l1: Whether the access is not kept in L1 (`.cg`, `.cv`, `.L1::no_allocate`).
    """

    opcode: str
    kind: Kind
    to: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None
    flops: int = 0
    space: str = ""
    vector: int = 1
    bypass_l1: bool = False


TABLE: dict[str, Row] = {}
"""Every row by opcode."""

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(
        "bool"
        if name == "pred"
        else {"s": "i", "f": "f"}.get(name[0], "u") + str(TYPE_BYTES[name])
        if "x2" not in name and name != "bf16"
        else f"u{TYPE_BYTES[name]}"
    )
    for name in TYPE_BYTES
    if name != "b128"
}
"""How the lanes of each PTX type are seen in NumPy; packed halves and bf16 as raw bits."""

# Qualifiers that order memory or hint at caches without changing what is computed or counted.
_WITHOUT_EFFECT = frozenset(
    "weak volatile relaxed acquire release acq_rel mmio cta cluster gpu sys uni aligned "
    "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last "
    "L2::evict_normal L2::evict_first L2::evict_last L2::cache_hint L2::64B L2::128B L2::256B "
    "level::eviction_priority".split()
)


def op(
    pattern: str,
    function: Callable[..., Any] | None = None,
    to: str = "",
    of: str = "",
    *,
    kind: Kind = "lanes",
    flops: int = 0,
    **more: Any,
) -> None:
    """Add a row for each expansion of a pattern.

    Args:
        pattern: The opcode with `{a,b}` where it varies.
        function: What it computes, see `Row.kind`.
        to: Destination types, separated by blanks.
        of: Source types, separated by blanks.
        kind: See `Row.kind`.
        flops: Floating-point operations a lane.
        **more: The other fields of `Row`.

    Raises:
        ValueError: The opcode has a row already.
    """
    pieces = re.split(r"\{([^}]*)\}", pattern)
    for chosen in itertools.product(*(piece.split(",") for piece in pieces[1::2])):
        opcode = "".join(itertools.chain(*itertools.zip_longest(pieces[::2], chosen, fillvalue="")))
        if opcode in TABLE:
            raise ValueError(f"{opcode} has a row already")
        TABLE[opcode] = Row(
            opcode,
            kind,
            tuple(to.format(*chosen).split()),
            tuple(of.format(*chosen).split()),
            function,
            flops,
            **more,
        )


def find(opcode: str) -> Row | None:
    """The row of an opcode, or None; qualifiers without effect may be left out of the table."""
    row = TABLE.get(opcode)
    if row is None:
        name, *qualifiers = opcode.split(".")
        kept = [each for each in qualifiers if each not in _WITHOUT_EFFECT]
        row = TABLE.get(".".join([name, *kept]))
    return row


def _each(names: str) -> Iterable[str]:
    return names.split()


INTEGERS = "s16,u16,s32,u32,s64,u64"
FLOATS = "f32,f64"
BITS = "b16,b32,b64"

# --- Moves ---------------------------------------------------------------------------------
op(f"mov.{{pred,{BITS},{INTEGERS},{FLOATS}}}", lambda a: a, "{0}", "{0}")
for space, window in WINDOWS.items():
    start = np.uint64(0 if space == "global" else window)
    op(f"cvta.{space}.u64", lambda a, start=start: a + start, "u64", "u64")
    op(f"cvta.to.{space}.u64", lambda a, start=start: a - start, "u64", "u64")

# --- Integer arithmetic --------------------------------------------------------------------
op(f"add.{{{INTEGERS}}}", np.add, "{0}", "{0} {0}")
op(f"sub.{{{INTEGERS}}}", np.subtract, "{0}", "{0} {0}")
op(f"mul.lo.{{{INTEGERS}}}", np.multiply, "{0}", "{0} {0}")
op(f"mad.lo.{{{INTEGERS}}}", lambda a, b, c: a * b + c, "{0}", "{0} {0} {0}")
for narrow, wide in (("16", "32"), ("32", "64")):
    for sign in "su":
        dtype = NUMPY_TYPES[sign + wide]
        op(
            f"mul.wide.{sign}{narrow}",
            lambda a, b, dtype=dtype: np.multiply(a, b, dtype=dtype),
            sign + wide,
            f"{sign}{narrow} {sign}{narrow}",
        )
op("shl.{b16,b32,b64}", arithmetic.shift_left, "{0}", "{0} u32")
op("shr.{b16,b32,b64,s16,u16,s32,u32,s64,u64}", arithmetic.shift_right, "{0}", "{0} u32")
op(f"and.{{pred,{BITS}}}", np.bitwise_and, "{0}", "{0} {0}")
op(f"or.{{pred,{BITS}}}", np.bitwise_or, "{0}", "{0} {0}")
op(f"min.{{{INTEGERS}}}", np.minimum, "{0}", "{0} {0}")
op(f"max.{{{INTEGERS}}}", np.maximum, "{0}", "{0} {0}")

# --- Floating point ------------------------------------------------------------------------
op("add{,.rn}.{f32,f64}", np.add, "{1}", "{1} {1}", flops=1)
op("sub{,.rn}.{f32,f64}", np.subtract, "{1}", "{1} {1}", flops=1)
op("mul{,.rn}.{f32,f64}", np.multiply, "{1}", "{1} {1}", flops=1)
op("div.rn.{f32,f64}", np.divide, "{0}", "{0} {0}", flops=1)
op("fma.rn.f32", arithmetic.fma_f32, "f32", "f32 f32 f32", flops=2)

# --- Comparison ----------------------------------------------------------------------------
for name, compare in (
    ("eq", np.equal),
    ("ne", np.not_equal),
    ("lt", np.less),
    ("le", np.less_equal),
    ("gt", np.greater),
    ("ge", np.greater_equal),
):
    op(f"setp.{name}.{{{INTEGERS},{FLOATS}}}", compare, "pred", "{0} {0}")

# --- Conversion ----------------------------------------------------------------------------
op("cvt.{s64,u64}.{s32,u32}", lambda a: a, "{0}", "{1}")
op("cvt.rn.f32.{s32,u32,s64,u64}", lambda a: a.astype(np.float32), "f32", "{0}")

# --- Memory --------------------------------------------------------------------------------
_MEMORY_TYPES = (
    "b8,b16,b32,b64,s8,s16,s32,s64,u8,u16,u32,u64,f32,f64"  # every vector fits 16 bytes a lane
)
_SPACES = {"": "generic"} | {f".{space}": space for space in _each("global shared local const param")}
_CACHE_OPERATORS = {"": False, ".ca": False, ".cs": False, ".lu": False, ".nc": False} | {
    ".cg": True,
    ".cv": True,
    ".wb": False,
    ".wt": False,
    ".L1::no_allocate": True,
}
for (suffix, space), (cache, bypass), count in itertools.product(
    _SPACES.items(), _CACHE_OPERATORS.items(), (1, 2, 4)
):
    if cache and space not in ("generic", "global"):
        continue
    vector_suffix = "" if count == 1 else f".v{count}"
    types = ",".join(
        each for each in _MEMORY_TYPES.split(",") if TYPE_BYTES[each] * count <= 16
    )
    common = {"space": space, "vector": count, "bypass_l1": bypass}
    if cache not in (".wb", ".wt"):
        op(f"ld{suffix}{cache}{vector_suffix}.{{{types}}}", None, "{0}", kind="load", **common)
    if space not in ("const", "param") and cache not in (".ca", ".lu", ".nc"):
        op(f"st{suffix}{cache}{vector_suffix}.{{{types}}}", None, "", "{0}", kind="store", **common)

# --- Control -------------------------------------------------------------------------------
op("bra", kind="branch")
op("{ret,exit}", kind="exit")
op("bar.sync", kind="barrier")
op("barrier.sync", kind="barrier")
