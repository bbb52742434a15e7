"""The instruction table: one row per opcode, in NVIDIA's spelling.

The rows follow the chapters of the PTX ISA. `rows` documents their fields; their functions are in
`arithmetic`, `integers`, `comparison`, `conversion`, `warp` and `tensor`. An opcode outside the
table is refused before launch.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from memlab.device.emulator.isa import (
    arithmetic,
    comparison,
    conversion,
    elementary,
    integers,
    macros,
    mbarrier,
    packed_bytes,
    tensor,
    warp,
    wmma,
)
from memlab.device.emulator.isa.address_space import WINDOWS, is_in_space
from memlab.device.emulator.isa.matrix_product import multiply_matrices
from memlab.device.emulator.isa.rows import TABLE, Kind, Row, find_row, op
from memlab.device.emulator.isa.values import (
    F32,
    S16,
    U16,
    Lowering,
    absolute,
    copy_sign,
    element_type,
    maximum,
    minimum,
    over_packed_parts,
    square_root,
)
from memlab.device.emulator.ptx.parser import TYPE_BYTES

__all__ = ["TABLE", "Kind", "Row", "find_row"]

INTEGERS = "s16,u16,s32,u32,s64,u64"
FLOATS = "f32,f64"
BITS = "b16,b32,b64"
_ALL_INTEGERS = f"s8,u8,{INTEGERS}"

function: Lowering
make: Callable[..., Lowering]
multiply: Lowering

# --- Moves and state spaces ----------------------------------------------------------------
op(f"mov.{{pred,b128,{BITS},{INTEGERS},{FLOATS}}}", lambda a: a, "{0}", "{0}")
for space, window in WINDOWS.items():
    base = 0 if space == "global" else window
    op(f"cvta.{space}.u64", partial(lambda a, base: a + base, base=base), "u64", "u64")
    op(f"cvta.to.{space}.u64", partial(lambda a, base: a - base, base=base), "u64", "u64")
    op(f"isspacep.{space}", partial(is_in_space, space), "pred", "u64")

# --- Integer arithmetic --------------------------------------------------------------------
op(f"add.{{{INTEGERS}}}", operator.add, "{0}", "{0} {0}")
op(f"sub.{{{INTEGERS}}}", operator.sub, "{0}", "{0} {0}")
op("add.sat.s32", integers.add_saturated, "s32", "s32 s32")
op("sub.sat.s32", integers.subtract_saturated, "s32", "s32 s32")
op(f"mul.lo.{{{INTEGERS}}}", operator.mul, "{0}", "{0} {0}")
op(f"mul.hi.{{{INTEGERS}}}", integers.multiply_high, "{0}", "{0} {0}")
op(f"mad.lo.{{{INTEGERS}}}", lambda a, b, c: a * b + c, "{0}", "{0} {0} {0}")
op(
    f"mad.hi.{{{INTEGERS}}}",
    lambda a, b, c: integers.multiply_high(a, b) + c,
    "{0}",
    "{0} {0} {0}",
)
op(
    "mad.hi.sat.s32",
    lambda a, b, c: integers.add_saturated(integers.multiply_high(a, b), c),
    "s32",
    "s32 s32 s32",
)
for sign, bits in itertools.product("su", (16, 32)):
    factor, product = f"{sign}{bits}", f"{sign}{2 * bits}"
    op(f"mul.wide.{factor}", integers.multiply_wide, product, f"{factor} {factor}")
    op(
        f"mad.wide.{factor}",
        lambda a, b, c: integers.multiply_wide(a, b) + c,
        product,
        f"{factor} {factor} {product}",
    )
op(
    "mul24.{lo,hi}.{s32,u32}",
    make=lambda half, _: partial(integers.multiply_24, half=half),
    to="{1}",
    of="{1} {1}",
)
op(
    "mad24.{lo,hi}.{s32,u32}",
    make=lambda half, _: lambda a, b, c: integers.multiply_24(a, b, half) + c,
    to="{1}",
    of="{1} {1} {1}",
)
op(
    f"sad.{{{INTEGERS}}}",
    lambda a, b, c: integers.absolute_difference(a, b) + c,
    "{0}",
    "{0} {0} {0}",
)
op(f"div.{{{INTEGERS}}}", integers.divide_integers, "{0}", "{0} {0}")
op(f"rem.{{{INTEGERS}}}", integers.remainder, "{0}", "{0} {0}")
op("abs.{s16,s32,s64}", absolute, "{0}", "{0}")
op("neg.{s16,s32,s64}", operator.neg, "{0}", "{0}")
op(f"min.{{{INTEGERS}}}", minimum, "{0}", "{0} {0}")
op(f"max.{{{INTEGERS}}}", maximum, "{0}", "{0} {0}")
for name, function in (("add", operator.add), ("min", minimum), ("max", maximum)):
    op(f"{name}.u16x2", over_packed_parts(function, U16), "b32", "b32 b32")
    op(f"{name}.s16x2", over_packed_parts(function, S16), "b32", "b32 b32")
op(
    "dp4a.{s32,u32}.{s32,u32}",
    make=lambda a, b: partial(
        integers.dot_product, a_part=element_type(f"{a[0]}8"), b_part=element_type(f"{b[0]}8")
    ),
    to="s32",
    of="{0} {1} s32",
)
op(
    "dp2a.{lo,hi}.{s32,u32}.{s32,u32}",
    make=lambda half, a, b: partial(
        integers.dot_product,
        a_part=element_type(f"{a[0]}16"),
        b_part=element_type(f"{b[0]}8"),
        start=2 * (half == "hi"),
    ),
    to="s32",
    of="{1} {2} s32",
)
for parts in (2, 4):
    op(
        f"vabsdiff{parts}.u32.u32.u32{{,.add}}",
        make=partial(integers.packed_absolute_differences, parts=parts),
        to="u32",
        of="u32 u32 u32",
    )
for name, function in (("min", minimum), ("max", maximum)):
    rectified = integers.with_integer_relu(function)
    op(f"{name}.relu.s32", rectified, "s32", "s32 s32")
    op(f"{name}.s32.relu", rectified, "s32", "s32 s32")  # as NVRTC 13.5 spells it
    op(f"{name}.relu.s16x2", over_packed_parts(rectified, S16), "b32", "b32 b32")
    op(f"{name}.s16x2.relu", over_packed_parts(rectified, S16), "b32", "b32 b32")

# Extended precision: the carry flag is an additional source or destination.
for bits in (32, 64):
    word = f"u{bits}"
    types = f"{{s{bits},u{bits}}}"
    for name, function in (("add", integers.add_carry), ("sub", integers.subtract_carry)):
        first = integers.without_carry_in(function, carry=name == "sub")
        only = integers.without_carry_out(function)
        pair = f"{word} {word}"
        op(f"{name}.cc.{types}", first, f"{word} pred", pair, carry="out")
        op(f"{name}c.{types}", only, word, f"{pair} pred", carry="in")
        op(f"{name}c.cc.{types}", function, f"{word} pred", f"{pair} pred", carry="in out")
    for half, sign in itertools.product(("lo", "hi"), "su"):
        number = f"{sign}{bits}"
        multiply = integers.multiply_add_carry(half)
        first, only = integers.without_carry_in(multiply), integers.without_carry_out(multiply)
        sources = f"{number} {number} {number}"
        op(f"mad.{half}.cc.{number}", first, f"{number} pred", sources, carry="out")
        op(f"madc.{half}.{number}", only, number, f"{sources} pred", carry="in")
        op(
            f"madc.{half}.cc.{number}",
            multiply,
            f"{number} pred",
            f"{sources} pred",
            carry="in out",
        )

# --- Bits ----------------------------------------------------------------------------------
op(f"and.{{pred,{BITS}}}", operator.and_, "{0}", "{0} {0}")
op(f"or.{{pred,{BITS}}}", operator.or_, "{0}", "{0} {0}")
op(f"xor.{{pred,{BITS}}}", operator.xor, "{0}", "{0} {0}")
op(f"not.{{pred,{BITS}}}", operator.invert, "{0}", "{0}")
op(f"cnot.{{{BITS}}}", lambda a: (a == 0).to(a.type), "{0}", "{0}")
op(f"shl.{{{BITS}}}", integers.shift_left, "{0}", "{0} u32")
op(f"shr.{{{BITS},{INTEGERS}}}", integers.shift_right, "{0}", "{0} u32")
op("shf.{l,r}.{wrap,clamp}.b32", make=integers.funnel_shift, to="u32", of="u32 u32 u32")
op("popc.{b32,b64}", integers.popcount, "u32", "{0}")
op("clz.{b32,b64}", integers.leading_zeros, "u32", "{0}")
op("brev.{b32,b64}", integers.reverse_bits, "{0}", "{0}")
op("bfind.{s32,u32,s64,u64}", integers.find_leading_bit, "u32", "{0}")
op("bfind.shiftamt.{s32,u32,s64,u64}", integers.shift_to_leading, "u32", "{0}")
op("bfe.{s32,u32,s64,u64}", integers.extract_bits, "{0}", "{0} u32 u32")
op("bfi.{b32,b64}", integers.insert_bits, "{0}", "{0} {0} u32 u32")
op("bmsk.{clamp,wrap}.b32", make=integers.bit_mask, to="u32", of="u32 u32")
op("szext.{clamp,wrap}.{s32,u32}", make=integers.extend_low_bits, to="{1}", of="u32 u32")
op("fns.b32", integers.find_nth_set_bit, "u32", "u32 u32 s32")
op("lop3.b32", integers.bitwise_lookup, "u32", "u32 u32 u32 u32")
op("prmt.b32", integers.permute_bytes, "u32", "u32 u32 u32")
op(
    f"prmt.b32.{{{','.join(integers.PERMUTE_MODES)}}}",
    make=lambda mode: partial(integers.permute_mode, mode=mode),
    to="u32",
    of="u32 u32 u32",
)

# --- Floating point ------------------------------------------------------------------------
# FLOPs are those of Nsight Compute's `smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma,...}`:
# an instruction that ptxas expands counts as the adds, multiplies and twice the FMAs of its usual
# path in the machine code (read off cubins of compute capability 7.5, 9.0 and 12.0).
_MODES = "{,.rn,.rz,.rm,.rp}"


def _operation(name: str, ptx_type: str) -> Callable[..., Lowering]:
    """Makes the function of an operation from a rounding mode, `.ftz` and `.sat`."""

    def make(mode: str, ftz: str = "", sat: str = "", *_: str) -> Lowering:
        exact = arithmetic.rounded_operation(name, ptx_type, mode[1:] or "rn")
        return arithmetic.with_modifiers(exact, ftz, sat)

    return make


for name in ("add", "sub", "mul"):
    for modifiers, number in (("{,.ftz}{,.sat}", "f32"), ("", "f64")):
        function = _operation(name, number)
        sources = f"{number} {number}"
        op(f"{name}{_MODES}{modifiers}.{number}", None, number, sources, make=function, flops=1)
for name in ("fma", "mad"):
    for modifiers, number in (("{,.ftz}{,.sat}", "f32"), ("", "f64")):
        function = _operation("fma", number)
        sources = f"{number} {number} {number}"
        modes = "{.rn,.rz,.rm,.rp}"
        op(f"{name}{modes}{modifiers}.{number}", None, number, sources, make=function, flops=2)
for name, flops, flops_f64 in (("div", 10, 15), ("rcp", 5, 10), ("sqrt", 6, 13)):
    for modifiers, number, count in (("{,.ftz}", "f32", flops), ("", "f64", flops_f64)):
        sources = f"{number} {number}" if name == "div" else number
        function = _operation(name, number)
        modes = "{.rn,.rz,.rm,.rp}"
        op(f"{name}{modes}{modifiers}.{number}", None, number, sources, make=function, flops=count)
for name in ("add", "sub", "mul"):
    function = arithmetic.rounded_operation(name, "f32")
    op(
        f"{name}{{,.rn}}.f32x2",
        over_packed_parts(function, F32),
        "b64",
        "b64 b64",
        flops=2,
    )
    flushed = over_packed_parts(arithmetic.with_ftz(function), F32)
    op(f"{name}{{,.rn}}.ftz.f32x2", flushed, "b64", "b64 b64", flops=2)
op(
    "fma.rn.f32x2",
    over_packed_parts(arithmetic.rounded_operation("fma", "f32"), F32),
    "b64",
    "b64 b64 b64",
    flops=4,
)

# name: function, then FLOPs without and with .ftz
for name, function, flops, flops_ftz in (
    ("div.approx", arithmetic.approximate_quotient, 1, 1),
    ("div.full", operator.truediv, 1, 1),
    ("rcp.approx", arithmetic.rounded_operation("rcp", "f32"), 2, 0),
    ("sqrt.approx", square_root, 0, 0),
    ("rsqrt.approx", arithmetic.rounded_from_float64(elementary.inverse_root), 0, 0),
    ("sin.approx", arithmetic.approximation(elementary.sin), 1, 1),
    ("cos.approx", arithmetic.approximation(elementary.cos), 1, 1),
    ("lg2.approx", arithmetic.approximation(elementary.log2), 0, 0),
    ("ex2.approx", arithmetic.approximation(elementary.exp2), 0, 0),
):
    sources = "f32 f32" if name.startswith("div") else "f32"
    op(f"{name}.f32", function, "f32", sources, flops=flops)
    op(f"{name}.ftz.f32", arithmetic.with_ftz(function), "f32", sources, flops=flops_ftz)
op("tanh.approx.f32", arithmetic.approximation(elementary.tanh), "f32", "f32")
function = arithmetic.upper_half(arithmetic.rounded_operation("rcp", "f64"))
op("rcp.approx.ftz.f64", function, "f64", "f64")
op("rsqrt.approx.ftz.f64", arithmetic.upper_half(elementary.inverse_root), "f64", "f64")
op("rsqrt.approx.f64", elementary.inverse_root, "f64", "f64", flops=8)

op("neg{,.ftz}.f32", make=partial(arithmetic.with_modifiers, operator.neg), to="f32", of="f32")
op("abs{,.ftz}.f32", make=partial(arithmetic.with_modifiers, absolute), to="f32", of="f32")
op("neg.f64", operator.neg, "f64", "f64")
op("abs.f64", absolute, "f64", "f64")
op("copysign.{f32,f64}", lambda a, b: copy_sign(b, a), "{0}", "{0} {0}")
op(
    "testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}",
    make=lambda test, _: arithmetic.TESTP_FUNCTIONS[test],
    to="pred",
    of="{1}",
)
for name, function in (("min", arithmetic.minimum), ("max", arithmetic.maximum)):

    def _extreme(ftz: str, nan: str, number: str, function: Lowering = function) -> Lowering:
        return arithmetic.with_modifiers(partial(function, nan=bool(nan)), ftz)

    op(f"{name}{{,.ftz}}{{,.NaN}}.{{f32}}", make=_extreme, to="f32", of="f32 f32")
    op(f"{name}{{}}{{}}.{{f64}}", make=_extreme, to="f64", of="f64 f64")

# --- Halves --------------------------------------------------------------------------------
for number in ("f16", "bf16"):
    both = f"{number}x2"
    modifiers = "{,.ftz}{,.sat}" if number == "f16" else "{}{}"
    for name in ("add", "sub", "mul", "fma"):
        function = _operation(name, number)
        modes, count = ("{.rn}", 3) if name == "fma" else ("{,.rn}", 2)
        pattern = f"{name}{modes}{modifiers}"
        op(f"{pattern}.{number}", None, number, " ".join([number] * count), make=function)
        packed = partial(over_packed_parts, part=element_type(number))
        op(
            f"{pattern}.{both}",
            None,
            both,
            " ".join([both] * count),
            make=lambda *chosen, f=function, packed=packed: packed(f(*chosen)),
        )
    function = conversion.with_relu(arithmetic.rounded_operation("fma", number), number)
    op(f"fma.rn.relu.{number}", function, number, f"{number} {number} {number}")
    op(f"fma.rn.relu.{both}", packed(function), both, f"{both} {both} {both}")
    unary = {
        "neg": arithmetic.without_rounding(operator.neg, number),
        "abs": arithmetic.without_rounding(absolute, number),
        "tanh.approx": arithmetic.approximation(elementary.tanh, number),
        f"ex2.approx{'.ftz' if number == 'bf16' else ''}": arithmetic.approximation(
            elementary.exp2, number
        ),
    }
    for name, function in unary.items():
        op(f"{name}.{number}", function, number, number)
        op(f"{name}.{both}", packed(function), both, both)
    for name, extreme in (("min", arithmetic.minimum), ("max", arithmetic.maximum)):
        for nan in ("", ".NaN"):
            function = arithmetic.without_rounding(partial(extreme, nan=bool(nan)), number)
            op(f"{name}{nan}.{number}", function, number, f"{number} {number}")
            op(f"{name}{nan}.{both}", packed(function), both, f"{both} {both}")

# --- Comparison and selection --------------------------------------------------------------
_SIGNED = "eq,ne,lt,le,gt,ge"
_FLOAT_COMPARISONS = ",".join([*comparison.ORDERED, *comparison.UNORDERED])
for comparisons, ftz, types in (
    ("eq,ne", "", BITS),
    (_SIGNED, "", "s16,s32,s64"),
    (f"{_SIGNED},lo,ls,hi,hs", "", "u16,u32,u64"),
    (_FLOAT_COMPARISONS, "", "f32,f64"),
    (_FLOAT_COMPARISONS, ".ftz", "f32"),
    (_FLOAT_COMPARISONS, "", "f16,bf16"),
    (_FLOAT_COMPARISONS, ".ftz", "f16"),
):
    end = f"{{{ftz}}}.{{{types}}}"
    plain, joined = f"setp.{{{comparisons}}}{end}", f"setp.{{{comparisons}}}.{{and,or,xor}}{end}"
    op(plain, None, "pred", "{2} {2}", make=comparison.comparison)
    op(joined, None, "pred", "{3} {3} pred", make=comparison.joined_comparison)
    if "f16" not in types:
        make = comparison.comparison_and_opposite
        op(f"{plain} d|p", None, "pred pred", "{2} {2}", make=make)
        make = comparison.joined_comparison_and_opposite
        op(f"{joined} d|p", None, "pred pred", "{3} {3} pred", make=make)
for ftz, types in (("", "f16,bf16"), (".ftz", "f16")):
    pair = f"setp.{{{_FLOAT_COMPARISONS}}}{{{ftz}}}.{{{types}}}x2 d|p"
    op(pair, None, "pred pred", "b32 b32", make=comparison.comparison_of_pair)
for comparisons, ftz, to, types in (
    (_SIGNED, "", "u32,s32,f32", "s16,u16,s32,u32,s64,u64"),
    (_FLOAT_COMPARISONS, ",.ftz", "u32,s32,f32", "f32"),
    (_FLOAT_COMPARISONS, "", "u32,s32,f32", "f64"),
    (_FLOAT_COMPARISONS, ",.ftz", "u16,s16,u32,s32,f16", "f16"),
    (_FLOAT_COMPARISONS, "", "u16,s16,u32,s32,bf16", "bf16"),
):
    pattern = f"set.{{{comparisons}}}{{{ftz}}}.{{{to}}}.{{{types}}}"
    op(pattern, None, "{2}", "{3} {3}", make=comparison.set_lanes)
for ftz, number in ((",.ftz", "f16"), ("", "bf16")):
    pattern = f"set.{{{_FLOAT_COMPARISONS}}}{{{ftz}}}.{{{number}x2,u32}}.{{{number}}}x2"
    op(pattern, None, "b32", "b32 b32", make=comparison.set_pair)
op(
    f"selp.{{{BITS},{INTEGERS},{FLOATS}}}",
    comparison.select,
    "{0}",
    "{0} {0} pred",
)
op(
    f"slct.{{{BITS},{INTEGERS},{FLOATS}}}.{{s32,f32}}",
    comparison.choose_by_sign,
    "{0}",
    "{0} {0} {1}",
)
op(
    f"slct.ftz.{{{BITS},{INTEGERS},{FLOATS}}}.f32",
    comparison.choose_by_flushed_sign,
    "{0}",
    "{0} {0} f32",
)

# --- Conversion ----------------------------------------------------------------------------
op(
    f"cvt{{,.sat}}.{{{_ALL_INTEGERS}}}.{{{_ALL_INTEGERS}}}",
    make=lambda sat, to, of: conversion.between_integers(to, bool(sat)),
    to="{1}",
    of="{2}",
)
op("cvt.pack.sat.{s16,u16}.s32", make=conversion.packed_integers, to="u32", of="s32 s32")
op(
    "cvt.pack.sat.{s8,u8,s4,u4,s2,u2}.s32.b32",
    make=conversion.packed_integers,
    to="u32",
    of="s32 s32 u32",
)
for number, modifiers, whole in (
    ("f32", "{,.ftz}{,.sat}", _ALL_INTEGERS),
    ("f16,f64", "{}{,.sat}", _ALL_INTEGERS),
    ("bf16", "{}{}", INTEGERS),
):
    pattern = f"cvt.{{rn,rz,rm,rp}}{modifiers}.{{{number}}}.{{{whole}}}"
    op(pattern, None, "{3}", "{4}", make=conversion.from_integer_with)
    pattern = f"cvt.{{rni,rzi,rmi,rpi}}{modifiers}.{{{whole}}}.{{{number}}}"
    op(pattern, None, "{3}", "{4}", make=conversion.to_integer_with)
for number, modifiers in (("f32", "{,.ftz}{,.sat}"), ("f16", "{}{,.sat}"), ("f64", "{}{,.sat}")):
    pattern = f"cvt.{{rni,rzi,rmi,rpi}}{modifiers}.{number}.{number}"
    op(pattern, None, number, number, make=conversion.to_integral)
op(
    "cvt.{rni,rzi,rmi,rpi}.bf16.bf16",
    make=lambda mode: arithmetic.without_rounding(conversion.round_to_integral(mode), "bf16"),
    to="bf16",
    of="bf16",
)
_ROUNDED = "{.rn,.rz,.rm,.rp}"
for pattern, pairs in (
    ("cvt{}{,.ftz}{,.sat}", "f32.f32 f32.f16 f64.f32"),
    ("cvt{}{}{,.sat}", "f16.f16 f64.f64 f64.f16"),
    ("cvt{}{,.ftz}{}", "f32.bf16"),
    ("cvt{}{}{}", "f64.bf16"),
    (f"cvt{_ROUNDED}{{,.ftz}}{{,.sat}}", "f32.f64 f16.f32"),
    (f"cvt{_ROUNDED}{{}}{{,.sat}}", "f16.f64"),
    (f"cvt{_ROUNDED}{{,.ftz}}{{}}", "bf16.f32"),
    (f"cvt{_ROUNDED}{{}}{{}}", "bf16.f64 bf16.f16 f16.bf16"),
):
    for to, of in (pair.split(".") for pair in pairs.split()):
        make = partial(conversion.between_floats_with, to, of)
        op(f"{pattern}.{to}.{of}", None, to, of, make=make)
for number, mode in itertools.product(("f16", "bf16"), ("rn", "rz")):
    function = conversion.between_floats(number, "f32", mode)
    positive = conversion.with_relu(function, number)
    op(f"cvt.{mode}.relu.{number}.f32", positive, number, "f32")
    op(f"cvt.{mode}.{number}x2.f32", conversion.convert_pair(function), "u32", "f32 f32")
    op(f"cvt.{mode}.relu.{number}x2.f32", conversion.convert_pair(positive), "u32", "f32 f32")
for number, relu in itertools.product(packed_bytes.FP8_FORMATS, ("", ".relu")):
    encode = packed_bytes.encode_fp8_pair(number, bool(relu))
    op(f"cvt.rn.satfinite{relu}.{number}x2.f32", encode, "u16", "f32 f32")
    op(
        f"cvt.rn.satfinite{relu}.{number}x2.f16x2",
        packed_bytes.encode_halves(number, bool(relu)),
        "u16",
        "u32",
    )
    op(
        f"cvt.rn{relu}.f16x2.{number}x2",
        packed_bytes.decode_fp8_pair(number, bool(relu)),
        "u32",
        "u16",
    )
op("cvt.{rna,rn,rz}.tf32.f32", make=conversion.to_tf32, to="u32", of="f32")

# --- Memory --------------------------------------------------------------------------------
_MEMORY_TYPES = f"b8,b16,b32,b64,b128,{_ALL_INTEGERS},f32,f64"
_SPACES = {"": "generic"} | {
    f".{space}": space for space in ("global", "shared", "local", "const", "param", "param::func")
}
_CACHE_OPERATORS = {
    **dict.fromkeys(("", ".ca", ".cs", ".lu", ".nc", ".wb", ".wt"), False),
    **dict.fromkeys((".cg", ".cv", ".L1::no_allocate", ".nc.L1::no_allocate"), True),
}
_ONLY_LOADS, _ONLY_STORES = (".ca", ".lu", ".nc", ".cv", ".nc.L1::no_allocate"), (".wb", ".wt")
for (suffix, space), (cache, bypass), count in itertools.product(
    _SPACES.items(), _CACHE_OPERATORS.items(), (1, 2, 4, 8)
):
    if cache and space not in ("generic", "global"):
        continue
    if ".nc" in cache and not suffix:
        continue
    widest = 32 if space == "global" else 16  # 32 bytes per lane since compute capability 10.0
    moved = [
        ptx_type
        for ptx_type in _MEMORY_TYPES.split(",")
        if TYPE_BYTES[ptx_type] * count <= widest
        and (count < 8 or TYPE_BYTES[ptx_type] == 4)
        and (ptx_type, count) != ("b128", 2)
    ]
    if not moved:
        continue
    vector = "" if count == 1 else f".v{count}"
    pattern = f"{suffix}{cache}{vector}.{{{','.join(moved)}}}"
    common: dict[str, Any] = {"space": space, "vector": count, "bypass_l1": bypass}
    if cache not in _ONLY_STORES:
        op(f"ld{pattern}", None, "{0}", kind="load", **common)
    if space not in ("const", "param") and cache not in _ONLY_LOADS:
        op(f"st{pattern}", None, "", "{0}", kind="store", **common)

for space, count in itertools.product(("", ".global"), (1, 2, 4)):  # `ldu`: as plain loads
    moved = [
        ptx_type for ptx_type in _MEMORY_TYPES.split(",") if TYPE_BYTES[ptx_type] * count <= 16
    ]
    vector = "" if count == 1 else f".v{count}"
    where: dict[str, Any] = {"space": space[1:] or "generic", "vector": count}
    op(f"ldu{space}{vector}.{{{','.join(moved)}}}", None, "{0}", kind="load", **where)
op("createpolicy.{fractional,range,range.global,cvt.L2}.b64", macros.create_policy, kind="macro")

_ATOMICS: dict[str, tuple[str, Lowering]] = {
    "add": ("u32,s32,u64,f32,f64", operator.add),
    "min": ("u32,s32,u64,s64", minimum),
    "max": ("u32,s32,u64,s64", maximum),
    "and": ("b32,b64", operator.and_),
    "or": ("b32,b64", operator.or_),
    "xor": ("b32,b64", operator.xor),
    "inc": ("u32", integers.increment),
    "dec": ("u32", integers.decrement),
}
_HALF_SUMS: dict[str, Lowering] = {
    number: arithmetic.rounded_operation("add", number) for number in ("f16", "bf16")
}
_HALF_SUMS |= {
    f"{number}x2": over_packed_parts(function, element_type(number))
    for number, function in _HALF_SUMS.items()
}
for suffix, space in (("", "generic"), (".global", "global"), (".shared", "shared")):
    for name, (types, function) in _ATOMICS.items():
        op(f"atom{suffix}.{name}.{{{types}}}", function, "{0}", "{0}", kind="atomic", space=space)
        op(f"red{suffix}.{name}.{{{types}}}", function, "", "{0}", kind="reduce", space=space)
    for number, function in _HALF_SUMS.items():
        name = f"add.noftz.{number}"
        op(f"atom{suffix}.{name}", function, number, number, kind="atomic", space=space)
        op(f"red{suffix}.{name}", function, "", number, kind="reduce", space=space)
    in_vectors: dict[str, Lowering] = {"f32": operator.add, **_HALF_SUMS}
    for number, count in itertools.product(in_vectors, (2, 4, 8)):
        if count * TYPE_BYTES[number] > 16 or space == "shared":
            continue
        of_many: dict[str, Any] = {"space": space, "vector": count}
        end = f"{suffix}.add{'' if number == 'f32' else '.noftz'}.v{count}.{number}"
        op(f"atom{end}", in_vectors[number], number, number, kind="atomic", **of_many)
        op(f"red{end}", in_vectors[number], "", number, kind="reduce", **of_many)
    op(
        f"atom{suffix}.exch.{{b32,b64,b128}}",
        lambda old, new: new,
        "{0}",
        "{0}",
        kind="atomic",
        space=space,
    )
    op(
        f"atom{suffix}.cas.{{b128,{BITS}}}",
        integers.compare_and_swap,
        "{0}",
        "{0} {0}",
        kind="atomic",
        space=space,
    )

op("cp.async.{ca,cg}.shared.global", macros.copy_async, kind="macro")

# --- Warps ---------------------------------------------------------------------------------
for name in ("up", "down", "bfly", "idx"):
    function = warp.shuffle(name)
    op(f"shfl.sync.{name}.b32 d|p", function, "b32 pred", "b32 u32 u32 u32", kind="warp")
    op(f"shfl.sync.{name}.b32", warp.first_result(function), "b32", "b32 u32 u32 u32", kind="warp")
op("vote.sync.{all,any,uni}.pred", make=warp.vote, to="pred", of="pred u32", kind="warp")
op("vote.sync.ballot.b32", warp.vote("ballot"), "u32", "pred u32", kind="warp")
op("activemask.b32", warp.active_mask, "u32", kind="warp")
op("match.any.sync.{b32,b64}", warp.match_any, "u32", "{0} u32", kind="warp")
op("match.all.sync.{b32,b64} d|p", warp.match_all, "u32 pred", "{0} u32", kind="warp")
op("match.all.sync.{b32,b64}", warp.first_result(warp.match_all), "u32", "{0} u32", kind="warp")
op("elect.sync d|p", warp.elect, "u32 pred", "u32", kind="warp")
for name, reduction, identity, types in (
    ("add", "add", 0, "u32,s32"),
    ("min", "umin", 0xFFFF_FFFF, "u32"),
    ("min", "smin", 0x7FFF_FFFF, "s32"),
    ("max", "umax", 0, "u32"),
    ("max", "smax", -0x8000_0000, "s32"),
    ("and", "and", 0xFFFF_FFFF, "b32"),
    ("or", "or", 0, "b32"),
    ("xor", "xor", 0, "b32"),
):
    function = warp.reduce_members(reduction, identity)
    op(f"redux.sync.{name}.{{{types}}}", function, "{0}", "{0} u32", kind="warp")

# --- Tensor cores --------------------------------------------------------------------------
for matrix_product in (*tensor.mma_products(), *wmma.wmma_products()):
    op(matrix_product.opcode, macros.flatten_fragments, kind="macro")
    op(
        f"{matrix_product.opcode} result",
        multiply_matrices(matrix_product),
        " ".join([matrix_product.word] * matrix_product.result.registers),
        " ".join([matrix_product.word] * matrix_product.source_registers),
        kind="warp",
        flops=matrix_product.flop // 32,
        tensor={"f16": "fp16", "tf32": "tf32", "bf16": "bf16"}.get(matrix_product.left.element, ""),
    )
op("ldmatrix.sync.m8n8.{x1,x2,x4}{,.trans}{,.shared}.b16", macros.load_matrices, kind="macro")
for count, trans in itertools.product((1, 2, 4), ("", ".trans")):
    op(
        f"ldmatrix.sync.m8n8.x{count}{trans}.b16 result",
        tensor.distribute_rows(count, bool(trans)),
        " ".join(["b32"] * count),
        "b32 b32 b32 b32",
        kind="warp",
    )

op("movmatrix.sync.m8n8.trans.b16", tensor.transpose_fragment, "b32", "b32", kind="warp")
op("stmatrix.sync.m8n8.{x1,x2,x4}{,.trans}{,.shared}.b16", macros.store_matrices, kind="macro")
for trans in ("", ".trans"):
    gathered = tensor.gather_rows(bool(trans))
    opcode = f"stmatrix.sync.m8n8{trans}.b16 rows"
    op(opcode, gathered, "b32 b32 b32 b32", "b32 b32 b32 b32", kind="warp")
op("wmma.address.{row,col}", make=wmma.lane_address, to="u64", of="u64 u32 u32 u32 u32 u32 u32")
op("wmma.column", wmma.column_address, "u64", "u64 u32 u32 u32")
for opcode in wmma.load_store_opcodes():
    op(opcode, wmma.expand_load_store, kind="macro")

# --- Control -------------------------------------------------------------------------------
op("bra", kind="branch")
op("brx.idx", macros.branch_by_index, kind="macro")
op("call", kind="call")
op("{ret,exit}", kind="exit")
op("trap", kind="trap")
op("__assertfail", of="u64", kind="trap")
op("vprintf", of="u64 u64", kind="print")
op("{bar,barrier}.sync", kind="barrier")
for name in ("bar", "barrier"):
    op(f"{name}.red.{{popc.u32,and.pred,or.pred}}", macros.reduce_at_barrier, kind="macro")
op("bar.red.popc.u32 result", warp.block_vote("popc"), "u32", "pred", kind="block")
op("bar.red.{and,or}.pred result", make=warp.block_vote, to="pred", of="pred", kind="block")
op("{bar,barrier}.arrive", kind="arrive")
op("bar.warp.sync", kind="nothing")
op("membar{,.gl,.cta,.sys}", kind="nothing")
op("mbarrier.init{,.shared}.b64", mbarrier.expand_init, kind="macro")
op("mbarrier.inval{,.shared}.b64", kind="nothing")
op(
    "mbarrier.{arrive,arrive_drop}{,.noComplete}{,.shared}.b64",
    mbarrier.expand_arrive,
    kind="macro",
)
op("mbarrier.{test_wait,try_wait}{,.parity}{,.shared}.b64", mbarrier.expand_test_wait, kind="macro")
op("cp.async.mbarrier.arrive{,.noinc}{,.shared}.b64", mbarrier.expand_async_arrive, kind="macro")
op("mbarrier.pending_count.b64", mbarrier.pending_arrivals, "u32", "u64")
op("mbarrier.init.word", mbarrier.initial_state, "u64", "u32")
op("mbarrier.over", mbarrier.is_phase_complete, "pred", "u64 u64")
op("mbarrier.over.parity", mbarrier.is_parity_complete, "pred", "u64 u32")
for suffix, space in (("", "generic"), (".shared", "shared")):
    for name, drop in (("arrive", False), ("arrive_drop", True)):
        opcode, function = f"atom{suffix}.{name}.u64 mbarrier", mbarrier.state_after_arrivals(drop)
        op(opcode, function, "u64", "u64", kind="atomic", space=space)
op("fence{,.sc,.mbarrier_init,.proxy.alias,.proxy.async,.proxy.async.global}", kind="nothing")
op("cp.async.{commit_group,wait_group,wait_all}", kind="nothing")
op("prefetch{,.global,.local}.{L1,L2}", kind="nothing")
op("{prefetchu.L1,discard.global.L2,discard.L2,nanosleep.u32,brkpt,pmevent}", kind="nothing")
op("griddepcontrol.{launch_dependents,wait}", kind="nothing")
op("setmaxnreg.{inc,dec}.sync.u32", kind="nothing")
