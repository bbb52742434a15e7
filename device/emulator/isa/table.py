"""The instruction table: one row per opcode, in NVIDIA's spelling.

The rows follow the chapters of the PTX ISA. `rows` documents their fields; their functions are in
`arithmetic`, `integers`, `comparison`, `conversion`, `warp` and `tensor`. An opcode outside the
table is refused before launch.
"""

from __future__ import annotations

import operator
from functools import partial
from itertools import product as combinations
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
    textures,
    warp,
    wmma,
)
from memlab.device.emulator.isa.address_space import (
    WINDOWS,
    is_in_space,
    is_own_shared,
    map_to_rank,
    rank_of,
)
from memlab.device.emulator.isa.asynchronous import bulk_copies, tensor_copies, warpgroup
from memlab.device.emulator.isa.integers import absolute_difference, multiply_high, multiply_wide
from memlab.device.emulator.isa.matrices.matrix_product import multiply_matrices
from memlab.device.emulator.isa.rounding import computed_in
from memlab.device.emulator.isa.rows import CLUSTER_VIEW, TABLE, Kind, Row, find_row, op
from memlab.device.emulator.isa.values import F64, U8, U16, Lowering, Value, maximum, minimum, where
from memlab.device.emulator.ptx.parser import TYPE_BYTES

__all__ = ["TABLE", "Kind", "Row", "find_row", "integer_operations"]

kind: Kind
function: Lowering

# --- Moves and state spaces ----------------------------------------------------------------
op("mov.{pred,b128,bits,integers,floats}", "{0} -> {0}", lambda a: a)
for space, window in WINDOWS.items():
    base = 0 if space == "global" else window
    op(f"cvta.{space}.u64", "u64 -> u64", partial(lambda base, a: a + base, base))
    op(f"cvta.to.{space}.u64", "u64 -> u64", partial(lambda base, a: a - base, base))
    if space != "shared":
        op(f"isspacep.{space}", "u64 -> pred", partial(is_in_space, space))
for name, start in (("cvta", WINDOWS["shared"]), ("cvta.to", -WINDOWS["shared"])):
    move = partial(lambda start, a: a + start, start)
    op(f"{name}.shared::cluster.u64", "u64 -> u64", move)
op("isspacep.shared", "", macros.ask_for_own_shared, kind="macro")
op("isspacep.own", "u64 u32 -> pred", is_own_shared)
op("isspacep.shared::cluster", "u64 -> pred", partial(is_in_space, "shared"))
op("mapa{,.shared::cluster}.{u32,u64}", "{1} u32 -> {1}", map_to_rank)
op("getctarank{,.shared::cluster}.{u32,u64}", "{1} -> u32", rank_of)

# --- Integer arithmetic --------------------------------------------------------------------
op("add.{integers}", "{0} {0} -> {0}", operator.add)
op("sub.{integers}", "{0} {0} -> {0}", operator.sub)
op("add.sat.s32", "s32 s32 -> s32", lambda a, b: a.call("llvm.sadd.sat", b))
op("sub.sat.s32", "s32 s32 -> s32", lambda a, b: a.call("llvm.ssub.sat", b))
op("mul.lo.{integers}", "{0} {0} -> {0}", operator.mul)
op("mul.hi.{integers}", "{0} {0} -> {0}", multiply_high)
op("mad.lo.{integers}", "{0} {0} {0} -> {0}", lambda a, b, c: a * b + c)
op("mad.hi.{integers}", "{0} {0} {0} -> {0}", lambda a, b, c: multiply_high(a, b) + c)
types = "s32 s32 s32 -> s32"
op("mad.hi.sat.s32", types, lambda a, b, c: multiply_high(a, b).call("llvm.sadd.sat", c))
for bits in (16, 32):
    two, wide = f"{{0}}{bits} {{0}}{bits}", f"{{0}}{2 * bits}"
    op(f"mul.wide.{{s,u}}{bits}", f"{two} -> {wide}", multiply_wide)
    op(
        f"mad.wide.{{s,u}}{bits}",
        f"{two} {wide} -> {wide}",
        lambda a, b, c: multiply_wide(a, b) + c,
    )
op("mul24.{lo,hi}.{s32,u32}", "{1} {1} -> {1}", choosing=integers.multiply_24)
op("mad24.{lo,hi}.{s32,u32}", "{1} {1} {1} -> {1}", choosing=integers.multiply_24)
op("sad.{integers}", "{0} {0} {0} -> {0}", lambda a, b, c: absolute_difference(a, b) + c)
op("div.{integers}", "{0} {0} -> {0}", integers.divide_integers)
op("rem.{integers}", "{0} {0} -> {0}", integers.remainder)
op("abs.{s16,s32,s64}", "{0} -> {0}", abs)
op("neg.{s16,s32,s64}", "{0} -> {0}", operator.neg)
op("min.{integers}", "{0} {0} -> {0}", minimum)
op("max.{integers}", "{0} {0} -> {0}", maximum)
for name, function in (("add", operator.add), ("min", minimum), ("max", maximum)):
    op(f"{name}.{{u16x2,s16x2}}", "b32 b32 -> b32", function)
for name, function in (("min", minimum), ("max", maximum)):
    rectified = partial(lambda extreme, a, b: maximum(extreme(a, b), 0), function)
    op(f"{name}.relu.{{s32}}", "s32 s32 -> s32", rectified)
    op(f"{name}.{{s32}}.relu", "s32 s32 -> s32", rectified)  # as NVRTC 13.5 spells it
    op(f"{name}.relu.{{s16x2}}", "b32 b32 -> b32", rectified)
    op(f"{name}.{{s16x2}}.relu", "b32 b32 -> b32", rectified)
for pattern, bits in (("dp4a{}", 8), ("dp2a.{lo,hi}", 16)):
    function, pattern = partial(integers.dot_product, bits), f"{pattern}.{{s32,u32}}.{{s32,u32}}"
    op(pattern, "{1} {2} s32 -> s32", choosing=function)
for parts, part in ((2, U16), (4, U8)):
    function = partial(integers.packed_absolute_differences, part)
    op(f"vabsdiff{parts}.u32.u32.u32{{,.add}}", "u32 u32 u32 -> u32", choosing=function)


# Extended precision: the carry flag is an additional source or destination.
def _carry(name: str, *choices: str) -> dict[str, Any] | None:
    """How an instruction of extended precision uses the carry flag; None if it does not."""
    uses = ["in"] * name.endswith("c") + ["out"] * (".cc" in choices)
    return {"carry": " ".join(uses)} if uses else None


for word in ("32", "64"):
    terms, end, total = f"u{word} u{word}", f"{{,.cc}}.{{s{word},u{word}}}", f"u{word}"
    function = integers.add_carry
    op(f"{{add,sub,addc,subc}}{end}", f"{terms} -> {total}", choosing=function, fields=_carry)
    function, terms = integers.multiply_add_carry, "{3} {3} {3}"
    op(f"{{mad,madc}}.{{lo,hi}}{end}", f"{terms} -> {total}", choosing=function, fields=_carry)

# --- Bits ----------------------------------------------------------------------------------
op("and.{pred,bits}", "{0} {0} -> {0}", operator.and_)
op("or.{pred,bits}", "{0} {0} -> {0}", operator.or_)
op("xor.{pred,bits}", "{0} {0} -> {0}", operator.xor)
op("not.{pred,bits}", "{0} -> {0}", operator.invert)
op("cnot.{bits}", "{0} -> {0}", lambda a: (a == 0).to(a.type))
op("shl.{bits}", "{0} u32 -> {0}", integers.shift_left)
op("shr.{bits,integers}", "{0} u32 -> {0}", integers.shift_right)
op("shf.{l,r}.{wrap,clamp}.b32", "u32 u32 u32 -> u32", choosing=integers.funnel_shift)
op("popc.{b32,b64}", "{0} -> u32", integers.popcount)
op("clz.{b32,b64}", "{0} -> u32", integers.leading_zeros)
op("brev.{b32,b64}", "{0} -> {0}", lambda a: a.call("llvm.bitreverse"))
op("bfind.{s32,u32,s64,u64}", "{0} -> u32", integers.find_leading_bit)
op("bfind.shiftamt.{s32,u32,s64,u64}", "{0} -> u32", integers.shift_to_leading)
op("bfe.{s32,u32,s64,u64}", "{0} u32 u32 -> {0}", integers.extract_bits)
op("bfi.{b32,b64}", "{0} {0} u32 u32 -> {0}", integers.insert_bits)
op("bmsk.{clamp,wrap}.b32", "u32 u32 -> u32", choosing=integers.bit_mask)
op("szext.{clamp,wrap}.{s32,u32}", "u32 u32 -> {1}", choosing=integers.extend_low_bits)
op("fns.b32", "u32 u32 s32 -> u32", integers.find_nth_set_bit)
op("lop3.b32", "u32 u32 u32 u32 -> u32", integers.bitwise_lookup)
op("lop3.{or,and}.b32 d|p", "u32 u32 u32 u32 pred -> u32 pred", choosing=integers.joined_lookup)
op("prmt.b32", "u32 u32 u32 -> u32", integers.permute_bytes)
names = ",".join(integers.PERMUTE_MODES)
op(f"prmt.b32.{{{names}}}", "u32 u32 u32 -> u32", choosing=integers.permute_mode)

# --- Floating point ------------------------------------------------------------------------
# FLOPs are those of Nsight Compute's `smsp__sass_thread_inst_executed_op_{fadd,fmul,ffma,...}`:
# an instruction that ptxas expands counts as the adds, multiplies and twice the FMAs of its usual
# path in the machine code (read off cubins of compute capability 7.5, 9.0 and 12.0). A packed
# instruction counts each of its halves.
function = arithmetic.operation
two, three = "{4} {4} -> {4}", "{4} {4} {4} -> {4}"
for end in ("{,.ftz}{,.sat}.{f32}", "{}{}.{f64}"):
    op(f"{{add,sub,mul}}{{,.rn,.rz,.rm,.rp}}{end}", two, choosing=function, flops=1)
    op(f"{{fma,mad}}{{.rn,.rz,.rm,.rp}}{end}", three, choosing=function, flops=2)
for name, types, flops, flops_f64 in (
    ("div", two, 10, 15),
    ("rcp", "{4} -> {4}", 5, 10),
    ("sqrt", "{4} -> {4}", 6, 13),
):
    pattern = f"{{{name}}}{{.rn,.rz,.rm,.rp}}"
    op(f"{pattern}{{,.ftz}}{{}}.{{f32}}", types, choosing=function, flops=flops)
    op(f"{pattern}{{}}{{}}.{{f64}}", types, choosing=function, flops=flops_f64)
op("{add,sub,mul}{,.rn}{,.ftz}{}.{f32x2}", "b64 b64 -> b64", choosing=function, flops=2)
op("{fma}{.rn}{}{}.{f32x2}", "b64 b64 b64 -> b64", choosing=function, flops=4)
for pair, flops in (("", 1), ("x2", 2)):
    for end in (f"{{,.ftz}}{{,.sat}}.{{f16{pair}}}", f"{{}}{{}}.{{bf16{pair}}}"):
        op(f"{{add,sub,mul}}{{,.rn}}{end}", two, choosing=function, flops=flops)
        op(f"{{fma}}{{.rn}}{end}", three, choosing=function, flops=2 * flops)
    end = f"fma.rn{{.relu}}.{{f16{pair},bf16{pair}}}"
    op(end, "{1} {1} {1} -> {1}", choosing=arithmetic.rectified_fma, flops=2 * flops)
_HALVES = "f16,bf16,f16x2,bf16x2"
function = arithmetic.mixed_operation  # since compute capability 10.0
op(
    "{add,sub}{,.rn,.rz,.rm,.rp}{,.sat}.f32.{f16,bf16}",
    "{3} f32 -> f32",
    choosing=function,
    flops=1,
)
op("{fma}{.rn,.rz,.rm,.rp}{,.sat}.f32.{f16,bf16}", "{3} {3} f32 -> f32", choosing=function, flops=2)

# name: function, then FLOPs without and with .ftz
reciprocal, square_root = arithmetic.NEAREST["rcp"], arithmetic.NEAREST["sqrt"]
approximation, inverse_root = arithmetic.approximation, elementary.inverse_root
for name, function, flops, flops_ftz in (
    ("div.approx", arithmetic.approximate_quotient, 1, 1),
    ("div.full", operator.truediv, 1, 1),
    ("rcp.approx", reciprocal, 2, 0),
    ("sqrt.approx", square_root, 0, 0),
    ("rsqrt.approx", partial(computed_in, F64, inverse_root, "f32"), 0, 0),
    ("sin.approx", partial(approximation, elementary.sin, "f32"), 1, 1),
    ("cos.approx", partial(approximation, elementary.cos, "f32"), 1, 1),
    ("lg2.approx", partial(approximation, elementary.log2, "f32"), 0, 0),
    ("ex2.approx", partial(approximation, elementary.exp2, "f32"), 0, 0),
):
    types = "f32 f32 -> f32" if name.startswith("div") else "f32 -> f32"
    op(f"{name}.f32", types, function, flops=flops)
    flushed = partial(arithmetic.with_ftz, ".ftz", function)
    op(f"{name}.ftz.f32", types, flushed, flops=flops_ftz)
function = partial(approximation, elementary.tanh)
op(f"tanh.approx.{{f32,{_HALVES}}}", "{0} -> {0}", choosing=function)
function = partial(approximation, elementary.exp2)
op("ex2.approx.{f16,f16x2}", "{0} -> {0}", choosing=function)
op("ex2.approx.ftz.{bf16,bf16x2}", "{0} -> {0}", choosing=function)
op("rcp.approx.ftz.f64", "f64 -> f64", partial(arithmetic.upper_half, reciprocal))
op("rsqrt.approx.ftz.f64", "f64 -> f64", partial(arithmetic.upper_half, inverse_root))
op("rsqrt.approx.f64", "f64 -> f64", inverse_root, flops=8)

op("{neg,abs}{,.ftz}.{f32}", "{2} -> {2}", choosing=arithmetic.change_sign)
op("{neg,abs}{.ftz}.{f16,f16x2}", "{2} -> {2}", choosing=arithmetic.change_sign)
op(f"{{neg,abs}}{{}}.{{f64,{_HALVES}}}", "{2} -> {2}", choosing=arithmetic.change_sign)
op("copysign.{f32,f64}", "{0} {0} -> {0}", lambda a, b: b.call("llvm.copysign", a))
names = "finite,infinite,number,notanumber,normal,subnormal"
op(f"testp.{{{names}}}.{{f32,f64}}", "{1} -> pred", choosing=arithmetic.has_property)
for end in ("{,.ftz}{,.NaN}.{f32}", "{}{}.{f64}", f"{{}}{{,.NaN}}.{{{_HALVES}}}"):
    op(f"{{min,max}}{end}", "{3} {3} -> {3}", choosing=arithmetic.extreme)

# --- Comparison and selection --------------------------------------------------------------
_SIGNED = ",".join(comparison.INTEGER_COMPARISONS)
_FLOATING = ",".join([*comparison.ORDERED, *comparison.UNORDERED])
for names, ftz, numbers, ends in (
    ("eq,ne", "", "bits", ("", " d|p")),
    (_SIGNED, "", "s16,s32,s64", ("", " d|p")),
    (f"{_SIGNED},lo,ls,hi,hs", "", "u16,u32,u64", ("", " d|p")),
    (_FLOATING, "", "floats", ("", " d|p")),
    (_FLOATING, ".ftz", "f32", ("", " d|p")),
    (_FLOATING, "", "f16,bf16", ("",)),
    (_FLOATING, ".ftz", "f16", ("",)),
):
    for (join, third), end in combinations((("", ""), (".and,.or,.xor", " pred")), ends):
        pattern = f"setp.{{{names}}}{{{join}}}{{{ftz}}}.{{{numbers}}}{{{end}}}"
        types = f"{{3}} {{3}}{third} -> pred{' pred' if end else ''}"
        op(pattern, types, choosing=comparison.set_predicate)
for ftz, numbers in (("", "f16,bf16"), (".ftz", "f16")):
    pattern = f"setp.{{{_FLOATING}}}{{{ftz}}}.{{{numbers}}}x2 d|p"
    op(pattern, "b32 b32 -> pred pred", choosing=comparison.set_predicates)
for names, ftz, to, of in (
    (_SIGNED, "", "u32,s32,f32", "integers"),
    (_FLOATING, ",.ftz", "u32,s32,f32", "f32"),
    (_FLOATING, "", "u32,s32,f32", "f64"),
    (_FLOATING, ",.ftz", "u16,s16,u32,s32,f16", "f16"),
    (_FLOATING, "", "u16,s16,u32,s32,bf16", "bf16"),
):
    pattern = f"set.{{{names}}}{{{ftz}}}.{{{to}}}.{{{of}}}"
    op(pattern, "{3} {3} -> {2}", choosing=comparison.set_lanes)
for ftz, number in ((",.ftz", "f16"), ("", "bf16")):
    pattern = f"set.{{{_FLOATING}}}{{{ftz}}}.{{{number}x2,u32}}.{{{number}x2}}"
    op(pattern, "b32 b32 -> b32", choosing=comparison.set_parts)
op("selp.{bits,integers,floats}", "{0} {0} pred -> {0}", lambda a, b, chosen: where(chosen, a, b))
for ftz, number in (("", "s32,f32"), (".ftz", "f32")):
    function = partial(comparison.choose_by_sign, ftz)
    op(f"slct{ftz}.{{bits,integers,floats}}.{{{number}}}", "{0} {0} {1} -> {0}", function)

# --- Conversion ----------------------------------------------------------------------------
function = conversion.between_integers
op("cvt{,.sat}.{all_integers}.{all_integers}", "{2} -> {1}", choosing=function)
function = conversion.pack_integers
op("cvt.pack.sat.{s16,u16}.s32", "s32 s32 -> u32", choosing=function)
op("cvt.pack.sat.{s8,u8,s4,u4,s2,u2}.s32.b32", "s32 s32 u32 -> u32", choosing=function)
for number, modifiers, whole in (
    ("f32", "{,.ftz}{,.sat}", "all_integers"),
    ("f16", "{}{,.sat}", "all_integers"),
    ("f64", "{}{,.sat}", "all_integers"),
    ("bf16", "{}{}", "integers"),
):
    pattern = f"cvt.{{rn,rz,rm,rp}}{modifiers}.{{{number}}}.{{{whole}}}"
    op(pattern, "{4} -> {3}", choosing=conversion.from_integer)
    pattern = f"cvt.{{rni,rzi,rmi,rpi}}{modifiers}"
    op(f"{pattern}.{{{whole}}}.{{{number}}}", "{4} -> {3}", choosing=conversion.to_integer)
    op(f"{pattern}.{number}.{{{number}}}", "{3} -> {3}", choosing=conversion.to_integral)
_MODES = "{.rn,.rz,.rm,.rp}"
for pattern in (
    "cvt{}{,.ftz}{,.sat}.{f32}.{f32,f16}",
    "cvt{}{,.ftz}{,.sat}.{f64}.{f32}",
    "cvt{}{}{,.sat}.{f16}.{f16}",
    "cvt{}{}{,.sat}.{f64}.{f64,f16}",
    "cvt{}{,.ftz}{}.{f32}.{bf16}",
    "cvt{}{}{}.{f64}.{bf16}",
    f"cvt{_MODES}{{,.ftz}}{{,.sat}}.{{f32}}.{{f64}}",
    f"cvt{_MODES}{{,.ftz}}{{,.sat}}.{{f16}}.{{f32}}",
    f"cvt{_MODES}{{}}{{,.sat}}.{{f16}}.{{f64}}",
    f"cvt{_MODES}{{,.ftz}}{{}}.{{bf16}}.{{f32}}",
    f"cvt{_MODES}{{}}{{}}.{{bf16}}.{{f64,f16}}",
    f"cvt{_MODES}{{}}{{}}.{{f16}}.{{bf16}}",
):
    op(pattern, "{4} -> {3}", choosing=conversion.between_floats)
op("cvt.{rn,rz}{.relu}.{f16,bf16}.f32", "f32 -> {2}", choosing=conversion.to_half)
op("cvt.{rn,rz}{,.relu}.{f16,bf16}x2.f32", "f32 f32 -> u32", choosing=conversion.to_halves)
pattern, function = "cvt.{rn,rz}{,.relu}.satfinite", conversion.to_finite_halves
op(f"{pattern}.{{f16,bf16}}.f32", "f32 -> {2}", choosing=function)
op(f"{pattern}.{{f16,bf16}}x2.f32", "f32 f32 -> u32", choosing=function)
op("cvt.{rna}.satfinite.tf32.f32", "f32 -> u32", choosing=conversion.to_finite_tf32)
pattern = "cvt.rn.satfinite{,.relu}.{e4m3,e5m2}x2"
op(f"{pattern}.f32", "f32 f32 -> u16", choosing=packed_bytes.encode_pair)
op(f"{pattern}.f16x2", "u32 -> u16", choosing=packed_bytes.encode_halves)
op("cvt.rn{,.relu}.f16x2.{e4m3,e5m2}x2", "u16 -> u32", choosing=packed_bytes.decode_pair)
op("cvt.{rna,rn,rz}.tf32.f32", "f32 -> u32", choosing=conversion.to_tf32)

# --- Memory --------------------------------------------------------------------------------
_MEMORY_TYPES = "b8,b128,bits,all_integers,floats"
_BYPASS_L1 = (".lu", ".cg", ".cv", ".L1::no_allocate", ".nc.L1::no_allocate")
"""Loads that an H200 leaves no line of in the L1 (docs/results/h100-hinted-lines.csv)."""


def _access(space: str, vector: str, ptx_type: str, widest: int = 16) -> dict[str, Any] | None:
    """The fields of an access to memory; None if it is wider than so many bytes."""
    count = int(vector[2:] or 1)
    if count * TYPE_BYTES[ptx_type] > widest:
        return None
    name, cluster, _ = space[1:].partition("::cluster")
    fields = {"space": name or "generic", "vector": count}
    return fields | {"view": CLUSTER_VIEW} if cluster else fields


def _cached_access(space: str, cache: str, vector: str, ptx_type: str) -> dict[str, Any] | None:
    """The fields of a load; None if there is none of this size."""
    if (vector == ".v8" and TYPE_BYTES[ptx_type] != 4) or (vector, ptx_type) == (".v2", "b128"):
        return None
    widest = 32 if space == ".global" else 16  # 32 bytes per lane since compute capability 10.0
    fields = _access(space, vector, ptx_type, widest)
    return fields and fields | {"bypass_l1": cache in _BYPASS_L1, "evict_first": cache == ".cs"}


def _cached_store(space: str, cache: str, vector: str, ptx_type: str) -> dict[str, Any] | None:
    """The fields of a store: all stay in the L1, unless they say that they do not."""
    fields = _cached_access(space, cache, vector, ptx_type)
    return fields and fields | {"bypass_l1": cache == ".L1::no_allocate"}


for pattern in (
    "ld{,.global,.shared,.shared::cluster,.local,.const,.param,.param::func}{}",
    "ld{,.global}{.ca,.cs,.lu,.cg,.cv,.L1::no_allocate}",
    "ld{.global}{.nc,.nc.L1::no_allocate}",
):
    pattern += f"{{,.v2,.v4,.v8}}.{{{_MEMORY_TYPES}}}"
    op(pattern, "-> {3}", kind="load", fields=_cached_access)
for pattern in (
    "st{,.global,.shared,.shared::cluster,.local,.param::func}{}",
    "st{,.global}{.cs,.wb,.wt,.cg,.L1::no_allocate}",
):
    pattern += f"{{,.v2,.v4,.v8}}.{{{_MEMORY_TYPES}}}"
    op(pattern, "{3} ->", kind="store", fields=_cached_store)
pattern = f"ldu{{,.global}}{{,.v2,.v4}}.{{{_MEMORY_TYPES}}}"  # as plain loads
op(pattern, "-> {2}", kind="load", fields=_access)
op(
    "createpolicy.{fractional,range,range.global,cvt.L2}.b64",
    "",
    macros.create_policy,
    kind="macro",
)


def _add_floats(space: str, vector: str, ptx_type: str, *sources: Value) -> Value:
    return arithmetic.operation("add", "", "", "", ptx_type, *sources)


def _add_copied_floats(ptx_type: str, *sources: Value) -> Value:
    """The sum of a bulk reduction; a NaN loses its payload but in float64 (an NVIDIA H200)."""
    total = _add_floats("", "", ptx_type, *sources)
    return total if ptx_type == "f64" else arithmetic.canonicalize_nan(total)


_COMBINATIONS: tuple[tuple[str, str, Lowering], ...] = (
    ("min", "u32,s32,u64,s64", minimum),
    ("max", "u32,s32,u64,s64", maximum),
    ("and", "b32,b64", operator.and_),
    ("or", "b32,b64", operator.or_),
    ("xor", "b32,b64", operator.xor),
    ("inc", "u32", integers.increment),
    ("dec", "u32", integers.decrement),
)
"""What atomics and the reductions of bulk copies do with integers, besides sums."""
_SPACES = "{,.global,.shared,.shared::cluster}"
for name, kind, to in (("atom", "atomic", "{2}"), ("red", "reduce", "")):
    for end, types, function in (("add", "u32,s32,u64,f32,f64", operator.add), *_COMBINATIONS):
        pattern = f"{name}{_SPACES}.{end}{{}}.{{{types}}}"
        op(pattern, f"{{2}} -> {to}", function, kind=kind, fields=_access)
    for end in (
        f"{_SPACES}.add.noftz{{}}.{{{_HALVES}}}",
        f"{{,.global}}.add.noftz{{.v2,.v4,.v8}}.{{{_HALVES}}}",
        "{,.global}.add{.v2,.v4,.v8}.{f32}",
    ):
        types = f"{{2}} -> {to}"
        op(f"{name}{end}", types, choosing=_add_floats, kind=kind, fields=_access)
for end, types, function in (
    ("exch{}.{b32,b64,b128}", "{2} -> {2}", lambda old, new: new),
    ("cas{}.{b128,bits}", "{2} {2} -> {2}", lambda old, a, new: where(old == a, new, old)),
):
    op(f"atom{_SPACES}.{end}", types, function, kind="atomic", fields=_access)

op("cp.async.{ca,cg}.shared.global", "", macros.copy_async, kind="macro")

# --- Bulk copies ---------------------------------------------------------------------------
_REDUCTIONS = ".add,.min,.max,.inc,.dec,.and,.or,.xor"
_AT_BARRIER = ".mbarrier::complete_tx::bytes"
for end, to, of in (
    (f"shared::cluster.global{_AT_BARRIER}", "shared", "global"),
    (f"shared.global{_AT_BARRIER}", "shared", "global"),
    (f"shared::cluster.shared{_AT_BARRIER}", "shared", "shared"),
    ("global.shared.bulk_group", "global", "shared"),
):
    op(f"cp.async.bulk.{end}", "", partial(bulk_copies.expand_copy, to, of), kind="macro")
    if of == "shared":
        reduction = partial(bulk_copies.expand_reduction, to, of)
        for pattern in (
            "{.add,.min,.max}.{u32,s32,u64,s64}",
            "{.inc,.dec}.{u32}",
            "{.and,.or,.xor}.{b32,b64}",
            *(("{.add,.min,.max}.{f16,bf16}", "{.add}.{f32,f64}") if to == "global" else ()),
            *(("{.add.noftz}.{f16,bf16}",) if to == "global" else ()),
        ):
            op(f"cp.reduce.async.bulk.{end}{pattern}", choosing=reduction, kind="macro")
pattern = f"cp.async.bulk.shared::cluster.global{_AT_BARRIER}.multicast::cluster"
op(pattern, "", partial(bulk_copies.expand_copy, "shared", "global"), kind="macro")
for name, end in (
    ("st", "{,.v2,.v4}.{b32,b64,u32,u64,s32,s64,f32,f64}"),
    *((f"red.{each}", "{}.{u32}") for each in ("inc", "dec")),
    *((f"red.{each}", "{}.{u32,s32}") for each in ("min", "max")),
    *((f"red.{each}", "{}.{b32}") for each in ("and", "or", "xor")),
    ("red.add", "{}.{u32,s32,u64}"),
):
    word, dot, operation = name.partition(".")
    pattern = f"{word}.async.shared::cluster{_AT_BARRIER}{dot}{operation}{end}"
    op(pattern, choosing=partial(bulk_copies.expand_remote, name), kind="macro")
op("cp.async.bulk.prefetch.L2.global", kind="nothing")
_RANKS = "1d,2d,3d,4d,5d"
_TENSOR_LOADS = (f"{{{_RANKS}}}", "{,.tile}"), ("{3d,4d,5d}", "{.im2col}")
_TENSOR_STORES = _TENSOR_LOADS[0], ("{3d,4d,5d}", "{.im2col_no_offs}")
for ranks, mode in _TENSOR_LOADS:
    for target in ("shared::cluster", "shared"):
        for end in ("", ".multicast::cluster"):
            pattern = f"cp.async.bulk.tensor.{ranks}.{target}.global{mode}{_AT_BARRIER}{end}"
            op(pattern, choosing=tensor_copies.expand_load, kind="macro")
    op(f"cp.async.bulk.prefetch.tensor.{ranks}.L2.global{mode}", kind="nothing")
for ranks, mode in _TENSOR_STORES:
    pattern = f"cp.async.bulk.tensor.{ranks}.global.shared{mode}.bulk_group"
    op(pattern, choosing=tensor_copies.expand_store, kind="macro")
    pattern = f"cp.reduce.async.bulk.tensor.{ranks}.global.shared{{{_REDUCTIONS}}}{mode}.bulk_group"
    op(pattern, choosing=tensor_copies.expand_reduction, kind="macro")
types, view = "-> b64", tensor_copies.MAP_VIEW
op(tensor_copies.MAP_READ, types, kind="load", space="generic", vector=2, counted=False, view=view)
for rank in _RANKS.split(","):
    op(f"tensor.pack.{rank}", "s64 " * int(rank[0]) + "-> u64", tensor_copies.pack)
for rank in ("3d", "4d", "5d"):
    types = "s64 s64 " + "u16 " * (int(rank[0]) - 2) + "-> u64"
    op(f"tensor.pack.{rank}.im2col", types, partial(tensor_copies.pack_pixel, rank))
op("tensor.point", "u32 u32 -> u64", tensor_copies.pack_point)
op("prefetch{,.param,.const}.tensormap", kind="nothing")
pattern = f"tensormap.replace.tile.{{{','.join(tensor_copies.REPLACED)}}}{{,.global,.shared}}.b1024"
op(f"{pattern}{{.b32,.b64}}", choosing=tensor_copies.expand_replace, kind="macro")
pattern = "tensormap.cp_fenceproxy.global.shared.tensormap::generic.sync"
op(pattern, "", tensor_copies.expand_copy, kind="macro")
for what in ("unit", "box", "shared"):
    op(f"tensor.sizes.{what}", "u64 " * 7 + "-> u64", partial(tensor_copies.sizes, what))
more: dict[str, Any]
for space in ("", ".global", ".shared"):
    more = {"space": space[1:] or "generic", "counted": False, "view": view}
    op(f"tensor.word{space}", "-> b64", kind="load", **more)
    op(f"tensor.set{space}", "b64 ->", kind="store", **more)
more = {"space": "global", "counted": False, "view": view}
op(tensor_copies.MAP_RELEASE, "b64 ->", kind="store", **more)
op("cp.async.bulk.{commit_group,wait_group,wait_group.read}", kind="nothing")
for space in ("global", "shared"):
    more = {"space": space, "bypass_l1": True, "view": bulk_copies.VIEW}
    for form, box in ((f"{{{_RANKS}}}", "b64 b64 b64"), ("{3d,4d,5d}.im2col", "b64 b64 b64 b64")):
        pattern = f"tensor.reduce.{space}.{form}{{{_REDUCTIONS}}}"
        op(pattern, f"b64 {box} ->", kind="reduce", **more)
        op(f"tensor.read.{space}.{form}", f"{box} -> b64", kind="load", **more)
        op(f"tensor.write.{space}.{form}", f"b64 {box} ->", kind="store", **more)
        if space == "shared":
            pattern = f"tensor.write.shared.{form} multicast"
            op(pattern, f"b64 {box} b16 ->", kind="store", **more)
    op(f"bulk.read.{space}", "u32 -> b64", kind="load", **more)
    op(f"bulk.write.{space}", "b64 u32 ->", kind="store", **more)
    if space == "shared":
        op("bulk.write.shared multicast", "b64 u32 b16 ->", kind="store", **more)
    for end, types, function in (("add", "u32,s32,u64,s64", operator.add), *_COMBINATIONS):
        pattern = f"bulk.reduce.{space}.{end}.{{{types}}}"
        op(pattern, "b64 u32 ->", function, kind="reduce", **more)
    types = "b64 u32 ->"
    for end in ("{f16,bf16,f32,f64}", "noftz.{f16,bf16}"):
        pattern = f"bulk.reduce.{space}.add.{end}"
        op(pattern, types, choosing=_add_copied_floats, kind="reduce", **more)
    op(
        f"bulk.reduce.{space}.{{min,max}}.{{f16,bf16}}",
        "b64 u32 ->",
        kind="reduce",
        **more,
        choosing=lambda name, kind, *sources: arithmetic.extreme(name, "", "", kind, *sources),
    )


# --- Textures and surfaces -----------------------------------------------------------------
def _surface_access(shape: str, vector: str, ptx_type: str) -> dict[str, Any] | None:
    """The fields of an access to a surface; None if it is wider than 16 bytes."""
    fields = _access(".global", vector, ptx_type)
    lanes = textures.SURFACE_REQUEST_LANES["3d" if shape == ".3d" else ""]
    return fields and fields | {"view": "surface", "request_lanes": lanes}


_OBJECT = "u64 " * textures.WORDS
op("texture.object", "-> b64", kind="load", space="param", vector=2, view="texture")
types = "s64 s64 s64 u64 -> b32"
op("texture.fetch", types, kind="load", space="global", view="texture")
for shape, (dimensions, layered) in textures.SHAPES.items():
    for of in ("f32", "s32") if shape == "1d" else ("f32",):
        function = partial(textures.expand_fetch, shape, of, "all")
        pattern = f"tex.{shape}.v4.{{f32,s32,u32}}.{of}"
        op(pattern, choosing=function, kind="macro", view="texture")
        types = f"{_OBJECT}{'s32 ' * layered}{f'{of} ' * dimensions}-> u64 s64 s64 s64 u64"
        pattern = f"texture.place.{shape}.{of}.{{all,r,g,b,a}}.{{f32,s32,u32}}"
        op(pattern, types, choosing=partial(textures.place_texels, shape, of))
    if dimensions == 2:
        pattern = f"tld4.{{r,g,b,a}}.{shape}.v4.{{f32,s32,u32}}.f32"
        function = partial(textures.expand_fetch, shape, "f32")
        op(pattern, choosing=function, kind="macro", view="texture")
    for name in ("suld", "sust"):
        pattern = f"{name}.b.{shape}{{,.v2,.v4}}.{{b8,b16,b32,b64}}.{{trap,clamp,zero}}"
        function = partial(textures.expand_surface_access, name, shape)
        fields = partial(_surface_access, f".{shape}")
        op(pattern, choosing=function, kind="macro", fields=lambda *of, to=fields: to(*of[:2]))
    types = f"{_OBJECT}{'s32 ' * (layered + dimensions)}-> u64 u32"
    function = partial(textures.place_surface_element, shape)
    op(f"surface.place.{shape}.{{1,2,4,8,16}}.{{trap,clamp,zero}}", types, choosing=function)
pattern = "{,.3d}{,.v2,.v4}.{b8,b16,b32,b64}"
op(f"surface.load{pattern}", "-> {2}", kind="load", fields=_surface_access)
op(f"surface.store{pattern}", "{2} ->", kind="store", fields=_surface_access)
for name in ("txq", "suq"):
    pattern = f"{name}.{{{textures.QUERIES}}}.b32"
    op(pattern, choosing=textures.expand_query, kind="macro", view="texture")
pattern = f"texture.query.{{{textures.QUERIES}}}"
op(pattern, f"{_OBJECT}-> u32", choosing=textures.query_object)

# --- Warps ---------------------------------------------------------------------------------
for pair, second in (("", ""), (" d|p", " pred")):
    pattern, types = f"shfl.sync.{{up,down,bfly,idx}}.b32{{{pair}}}", "b32 u32 u32 u32 -> b32"
    op(pattern, types + second, choosing=warp.shuffle, kind="warp")
    pattern, types = f"match.all.sync.{{b32,b64}}{{{pair}}}", "{0} u32 -> u32"
    op(pattern, types + second, choosing=warp.match_all, kind="warp")
op("match.any.sync.{b32,b64}", "{0} u32 -> u32", warp.match_any, kind="warp")
op("vote.sync.{all,any,uni}.{pred}", "pred u32 -> pred", choosing=warp.vote, kind="warp")
op("vote.sync.{ballot}.{b32}", "pred u32 -> u32", choosing=warp.vote, kind="warp")
op("activemask.b32", "-> u32", warp.active_mask, kind="warp")
op("elect.sync d|p", "u32 -> u32 pred", warp.elect, kind="warp")
for pattern in ("redux.sync.{add,min,max}.{u32,s32}", "redux.sync.{and,or,xor}.{b32}"):
    op(pattern, "{1} u32 -> {1}", choosing=warp.reduce_members, kind="warp")

# --- Tensor cores --------------------------------------------------------------------------
TENSOR_KINDS = {"f16": "fp16", "tf32": "tf32", "bf16": "bf16", "e4m3": "fp8", "e5m2": "fp8"}
"""The kind of the tensor cores' peak, by PTX's type of the factors."""
MATRIX_PRODUCTS = (*tensor.mma_products(), *wmma.wmma_products())
"""All products of warps, as Hopper sums them."""
for product in MATRIX_PRODUCTS:
    op(product.opcode, "", macros.flatten_fragments, kind="macro")
_older = (tensor.with_older_sums(product) for product in MATRIX_PRODUCTS if product.is_aligned)
for product in (*MATRIX_PRODUCTS, *_older):
    sources, results = product.source_registers, product.result.registers
    op(
        f"{product.opcode} result",
        f"{f'{product.word} ' * sources} -> {f'{product.word} ' * results}",
        partial(multiply_matrices, product),
        kind="warp",
        flops=product.flop // 32,
        tensor=TENSOR_KINDS.get(product.left.element, ""),
    )
for name, function in (("ld", macros.load_matrices), ("st", macros.store_matrices)):
    for shape in (
        "m8n8.{x1,x2,x4}{,.trans}",
        "{x1,x2,x4}{,.trans}.m8n8",
    ):  # ptxas takes both
        op(f"{name}matrix.sync.{shape}{{,.shared}}.b16", "", function, kind="macro")
for count in (1, 2, 4):
    pattern = f"ldmatrix.sync.m8n8.x{{{count}}}{{,.trans}}.b16 result"
    types = f"b32 b32 b32 b32 -> {'b32 ' * count}"
    op(pattern, types, choosing=tensor.distribute_rows, kind="warp")
types = "b32 b32 b32 b32 -> b32 b32 b32 b32"
op("stmatrix.sync.m8n8{,.trans}.b16 rows", types, choosing=tensor.gather_rows, kind="warp")
op("movmatrix.sync.m8n8.trans.b16", "b32 -> b32", tensor.transpose_fragment, kind="warp")
types = "u64 u32 u32 u32 u32 u32 u32 -> u64"
op("wmma.address.{row,col}", types, choosing=wmma.lane_address)
op("wmma.column", "u64 u32 u32 u32 -> u64", wmma.column_address)
for pattern in wmma.load_store_patterns():
    op(pattern, "", wmma.expand_load_store, kind="macro")


def _warpgroup_product(*choices: str) -> dict[str, Any]:
    """The fields of the product of one warp of a warpgroup."""
    product = warpgroup.product_of(*choices[:-1])
    return {
        "of": ("pred", *["b32"] * product.source_registers),
        "to": ("b32",) * product.result.registers,
        "flops": product.flop // 32,
        "tensor": TENSOR_KINDS.get(product.left.element, ""),
    }


for types in warpgroup.type_patterns():
    op(f"wgmma.mma_async.sync.{types}", "", warpgroup.expand_product, kind="macro")
    pattern = f"wgmma.product.{types}.{{{warpgroup.LAYOUTS}}}{{,.neg}}"
    op(pattern, choosing=warpgroup.multiply, kind="warp", fields=_warpgroup_product)
types = "u64 u32 u32 u32 -> u32"
op("wgmma.address.{a,b}.{k,mn}", types, choosing=warpgroup.address_of_unit)
op("wgmma.load", "-> b32", kind="load", space="shared", vector=4, counted=False)
op("wgmma.{fence,commit_group,wait_group}.sync", kind="nothing")

# --- Control -------------------------------------------------------------------------------
op("bra{,.call,.return}", kind="branch")
op("brx.idx", "", macros.branch_by_index, kind="macro")
op("call", kind="call")
op("{ret,exit}", kind="exit")
op("trap{,.stack,.call}", kind="trap")
op("__assertfail", "u64 ->", kind="trap")
op("vprintf", "u64 u64 ->", kind="print")
op("malloc", "u64 -> u64", kind="heap")
op("free", "u64 ->", kind="heap")
op("{bar,barrier}.sync", kind="barrier")
op("{bar,barrier}.red.{popc.u32,and.pred,or.pred}", "", macros.reduce_at_barrier, kind="macro")
op("bar.red.{popc}.{u32} result", "pred -> u32", choosing=warp.block_vote, kind="block")
op("bar.red.{and,or}.{pred} result", "pred -> pred", choosing=warp.block_vote, kind="block")
op("{bar,barrier}.arrive", kind="arrive")
op("barrier.cluster.arrive", kind="arrive")
op("barrier.cluster.wait", kind="barrier")
op("bar.warp.sync", kind="nothing")
op("membar{,.gl,.cta,.sys}", kind="nothing")
op("mbarrier.inval{,.shared}.b64", kind="nothing")
for pattern, function in (
    ("mbarrier.init{,.shared}.b64", mbarrier.expand_init),
    (
        "mbarrier.{arrive,arrive_drop}{,.expect_tx}{,.noComplete}{,.shared,.shared::cluster}.b64",
        mbarrier.expand_arrive,
    ),
    (
        "mbarrier.{expect_tx,complete_tx}{,.shared,.shared::cluster}.b64",
        mbarrier.expand_transactions,
    ),
    ("mbarrier.{test_wait,try_wait}{,.parity}{,.shared}.b64", mbarrier.expand_test_wait),
    ("cp.async.mbarrier.arrive{,.noinc}{,.shared}.b64", mbarrier.expand_async_arrive),
):
    op(pattern, "", function, kind="macro")
op("mbarrier.pending_count.b64", "u64 -> u32", mbarrier.pending_arrivals)
op("mbarrier.init.word", "u32 -> u64", mbarrier.initial_state)
op("mbarrier.change.expect", "u32 u32 -> u64", mbarrier.expected_change)
op("mbarrier.change.complete", "u32 -> u64", mbarrier.completed_change)
op("mbarrier.beside", "u64 u64 -> u64", bulk_copies.barrier_beside)
op("mbarrier.over", "u64 u64 -> pred", mbarrier.is_phase_complete)
op("mbarrier.over.parity", "u64 u32 -> pred", mbarrier.is_parity_complete)
for drop in ("", "_drop"):
    function = partial(mbarrier.changed_state, drop)
    pattern = f"atom{{,.shared}}.arrive{drop}{{}}.{{u64}} mbarrier"
    op(pattern, "u64 -> u64", function, kind="atomic", fields=_access)
    pattern = f"atom.shared::cluster.arrive{drop}.u64 mbarrier"  # an H200 counts none of these
    more = {"space": "shared", "view": CLUSTER_VIEW, "counted": False}
    op(pattern, "u64 -> u64", function, kind="atomic", **more)
function = partial(mbarrier.changed_state, "")
for space in ("generic", "shared"):
    pattern = f"atom{'' if space == 'generic' else '.shared'}.arrive.u64 mbarrier of copies"
    more = {"space": space, "counted": False}
    op(pattern, "u64 -> u64", function, kind="atomic", **more)
more = {"space": "shared", "view": bulk_copies.VIEW}
name = "atom.shared.arrive.u64 mbarrier of a bulk copy"
op(name, "u64 -> u64", function, kind="atomic", **more)
op(f"{name} multicast", "u64 b16 -> u64", function, kind="atomic", **more)
op("fence{,.sc,.mbarrier_init,.proxy.alias}", kind="nothing")
op("fence.proxy.async{,.global,.shared,.shared::cluster}", kind="nothing")
op("fence.proxy.tensormap::generic", kind="nothing")
op("cp.async.{commit_group,wait_group,wait_all}", kind="nothing")
op("fence.{sync_restrict,proxy.async::generic.sync_restrict}::shared{,::cluster}", kind="nothing")
op("prefetch{,.global,.local}.{L1,L2}", kind="nothing")
op("{prefetch,applypriority}{,.global}", kind="nothing")  # with a priority in L2
op("{prefetchu.L1,discard.global.L2,discard.L2,nanosleep.u32,brkpt,pmevent}", kind="nothing")
op("griddepcontrol.{launch_dependents,wait}", kind="nothing")
op("setmaxnreg.{inc,dec}.sync.u32", kind="nothing")


_INTEGER_PIPES = {
    word: pipe
    for pipe, words in {
        "alu": "add sub addc subc sad min max abs neg and or xor not cnot shl shr shf bfe bfi bmsk "
        "lop3 szext setp set vabsdiff2 vabsdiff4",
        "fma": "mul mad madc mul24 mad24 dp4a dp2a",
        "xu": "popc clz bfind",
    }.items()
    for word in words.split()
}
"""The pipe that executes integer instructions, by the first word of their opcodes."""


def integer_operations(row: Row) -> tuple[str, int] | None:
    """The integer operations of an instruction per lane, where no machine code tells.

    Returns:
        The pipe, `alu`, `fma` or `xu`, and how many instructions of 32 bits ptxas makes of it at
        least; None for other instructions.
    """
    pipe = _INTEGER_PIPES.get(row.opcode.partition(".")[0])
    number = row.of[0] if row.of else ""
    if pipe is None or row.flops or number == "bf16" or number[:1] not in ("u", "s", "b"):
        return None
    return pipe, 2 if "64" in number else 1
