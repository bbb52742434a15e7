"""The reference of moves, integers, bits, comparisons, selections, addresses and words."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.reference import arithmetic, comparison, integers, words
from tests.reference.rows import ROWS, Function, op

_FIRST = len(ROWS)
_INTEGERS = "s16,u16,s32,u32,s64,u64"
_BITS = "b16,b32,b64"
_WINDOWS = {"global": 0, "shared": 0x7E, "local": 0x7D, "const": 0x7C, "param": 0x7B}

function: Function

# --- Moves and state spaces ------------------------------------------------------------------
op(f"mov.{{pred,b128,{_BITS},{_INTEGERS},f32,f64}}", lambda a: a)
for space, window in _WINDOWS.items():
    start = np.uint64(window << 40)
    op(f"cvta.{space}.u64", partial(np.add, start))
    op(f"cvta.to.{space}.u64", lambda a, start=start: a - start)
    if space != "shared":
        op(f"isspacep.{space}", partial(words.is_in_space, space))
op("isspacep.own", words.is_own_shared)
shared = np.uint64(_WINDOWS["shared"] << 40)
op("cvta.shared::cluster.u64", partial(np.add, shared))
op("cvta.to.shared::cluster.u64", lambda a: a - shared)
op("isspacep.shared::cluster", partial(words.is_in_space, "shared"))
op("mapa{,.shared::cluster}.{u32,u64}", words.map_to_rank)
op("getctarank{,.shared::cluster}.{u32,u64}", words.rank_of)

# --- Integer arithmetic ----------------------------------------------------------------------


def _wide(a: Any, b: Any) -> Any:
    return np.multiply(a, b, dtype=f"{a.dtype.kind}{2 * a.dtype.itemsize}")


def _packed(function: Function, sign: str) -> Function:
    return arithmetic.over_packed_parts(function, f"{sign}2")


def _part(ptx_type: str, size: int) -> str:
    return f"{'i' if ptx_type[0] == 's' else 'u'}{size}"


def _dot_products(a: str, b: str) -> Function:
    return partial(integers.dot_product, a_part=_part(a, 1), b_part=_part(b, 1))


def _dot_products_of_halves(half: str, a: str, b: str) -> Function:
    start = 2 * (half == "hi")
    return partial(integers.dot_product, a_part=_part(a, 2), b_part=_part(b, 1), start=start)


for name, function in {
    "add": np.add,
    "sub": np.subtract,
    "mul.lo": np.multiply,
    "mul.hi": integers.multiply_high,
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.hi": integers.multiply_high_add,
    "sad": lambda a, b, c: integers.absolute_difference(a, b) + c,
    "div": integers.divide_integers,
    "rem": integers.remainder,
    "min": np.minimum,
    "max": np.maximum,
}.items():
    op(f"{name}.{{{_INTEGERS}}}", function)
op("add.sat.s32", integers.add_saturated)
op("sub.sat.s32", integers.subtract_saturated)
op("mad.hi.sat.s32", integers.multiply_high_add_saturated)
op("mul.wide.{s,u}{16,32}", _wide)
op("mad.wide.{s,u}{16,32}", lambda a, b, c: _wide(a, b) + c)
for half in ("lo", "hi"):
    function = partial(integers.multiply_24, half=half)
    op(f"mul24.{half}.{{s32,u32}}", function)
    op(f"mad24.{half}.{{s32,u32}}", lambda a, b, c, product=function: product(a, b) + c)
op("abs.{s16,s32,s64}", np.abs)
op("neg.{s16,s32,s64}", np.negative)
op("dp4a.{s32,u32}.{s32,u32}", make=_dot_products)
op("dp2a.{lo,hi}.{s32,u32}.{s32,u32}", make=_dot_products_of_halves)
for parts in (2, 4):
    make = partial(integers.packed_absolute_differences, parts=parts)
    op(f"vabsdiff{parts}.u32.u32.u32{{,.add}}", make=make)
for name, function in {"add": np.add, "min": np.minimum, "max": np.maximum}.items():
    op(f"{name}.u16x2", _packed(function, "u"))
    op(f"{name}.s16x2", _packed(function, "i"))
for name, function in {"min": np.minimum, "max": np.maximum}.items():
    positive = integers.with_integer_relu(function)
    op(f"{name}{{.relu.s32,.s32.relu}}", positive)
    op(f"{name}{{.relu.s16x2,.s16x2.relu}}", _packed(positive, "i"))

# --- Extended precision ----------------------------------------------------------------------
_WORDS = "{s32,u32,s64,u64}"
for name, function in {"add": integers.add_carry, "sub": integers.subtract_carry}.items():
    op(f"{name}.cc.{_WORDS}", integers.without_carry_in(function, carry=name == "sub"))
    op(f"{name}c.{_WORDS}", integers.without_carry_out(function))
    op(f"{name}c.cc.{_WORDS}", function)
for half in ("lo", "hi"):
    function = integers.multiply_add_carry(half)
    op(f"mad.{half}.cc.{_WORDS}", integers.without_carry_in(function))
    op(f"madc.{half}.{_WORDS}", integers.without_carry_out(function))
    op(f"madc.{half}.cc.{_WORDS}", function)

# --- Bits ------------------------------------------------------------------------------------
op(f"and.{{pred,{_BITS}}}", np.bitwise_and)
op(f"or.{{pred,{_BITS}}}", np.bitwise_or)
op(f"xor.{{pred,{_BITS}}}", np.bitwise_xor)
op(f"not.{{pred,{_BITS}}}", np.invert)
op(f"cnot.{{{_BITS}}}", lambda a: (a == 0).astype(a.dtype))
op(f"shl.{{{_BITS}}}", integers.shift_left)
op(f"shr.{{{_BITS},{_INTEGERS}}}", integers.shift_right)
op("shf.{l,r}.{wrap,clamp}.b32", make=integers.funnel_shift)
op("popc.{b32,b64}", integers.popcount)
op("clz.{b32,b64}", integers.leading_zeros)
op("brev.{b32,b64}", integers.reverse_bits)
op(f"bfind.{_WORDS}", integers.find_leading_bit)
op(f"bfind.shiftamt.{_WORDS}", integers.shift_to_leading)
op(f"bfe.{_WORDS}", integers.extract_bits)
op("bfi.{b32,b64}", integers.insert_bits)
op("bmsk.{clamp,wrap}.b32", make=integers.bit_mask)
op("szext.{clamp,wrap}.{s32,u32}", make=integers.extend_low_bits)
op("fns.b32", integers.find_nth_set_bit)
op("lop3.b32", integers.bitwise_lookup)
op("lop3.{or,and}.b32 d|p", make=integers.joined_lookup)
op("prmt.b32", integers.permute_bytes)
for mode in integers.PERMUTE_MODES:
    op(f"prmt.b32.{mode}", partial(integers.permute_mode, mode=mode))

# --- Comparison and selection ----------------------------------------------------------------
_OF_INTEGERS = "eq,ne,lt,le,gt,ge"
_OF_FLOATS = ",".join([*comparison.ORDERED, *comparison.UNORDERED])
for names, ftz, types in (
    ("eq,ne", "", _BITS),
    (_OF_INTEGERS, "", "s16,s32,s64"),
    (f"{_OF_INTEGERS},lo,ls,hi,hs", "", "u16,u32,u64"),
    (_OF_FLOATS, ",.ftz", "f32"),
    (_OF_FLOATS, "", "f64"),
    (_OF_FLOATS, ",.ftz", "f16"),
    (_OF_FLOATS, "", "bf16"),
):
    end = f"{{{ftz}}}.{{{types}}}"
    plain, joined = f"setp.{{{names}}}{end}", f"setp.{{{names}}}.{{and,or,xor}}{end}"
    op(plain, make=comparison.comparison)
    op(joined, make=comparison.joined_comparison)
    if "f16" not in types:
        op(f"{plain} d|p", make=comparison.comparison_and_opposite)
        op(f"{joined} d|p", make=comparison.joined_comparison_and_opposite)
for names, ftz, to, types in (
    (_OF_INTEGERS, "", "u32,s32,f32", _INTEGERS),
    (_OF_FLOATS, ",.ftz", "u32,s32,f32", "f32"),
    (_OF_FLOATS, "", "u32,s32,f32", "f64"),
    (_OF_FLOATS, ",.ftz", "u16,s16,u32,s32,f16", "f16"),
    (_OF_FLOATS, "", "u16,s16,u32,s32,bf16", "bf16"),
):
    op(f"set.{{{names}}}{{{ftz}}}.{{{to}}}.{{{types}}}", make=comparison.set_lanes)
for number, ftz in (("f16", ",.ftz"), ("bf16", "")):
    end = f"{{{_OF_FLOATS}}}{{{ftz}}}"
    op(f"setp.{end}.{{{number}}}x2 d|p", make=comparison.comparison_of_pair)
    op(f"set.{end}.{{{number}x2,u32}}.{{{number}}}x2", make=comparison.set_pair)
_SELECTED = f"{{{_BITS},{_INTEGERS},f32,f64}}"
op(f"selp.{_SELECTED}", lambda a, b, p: np.where(p, a, b))
op(f"slct.{_SELECTED}.{{s32,f32}}", arithmetic.choose_by_sign)
op(f"slct.ftz.{_SELECTED}.f32", arithmetic.choose_by_flushed_sign)

# --- Atomics ---------------------------------------------------------------------------------
for name, function in {
    "add.{u32,s32,u64,f32,f64}": np.add,
    "min.{u32,s32,u64,s64}": np.minimum,
    "max.{u32,s32,u64,s64}": np.maximum,
    "and.{b32,b64}": np.bitwise_and,
    "or.{b32,b64}": np.bitwise_or,
    "xor.{b32,b64}": np.bitwise_xor,
    "inc.u32": integers.increment,
    "dec.u32": integers.decrement,
}.items():
    op(f"{{atom,red}}{{,.global,.shared}}.{name}", function)
op("{atom,red}{,.global}.add.v{2,4}.f32", np.add)
op("atom{,.global,.shared}.exch.{b32,b64,b128}", lambda old, new: new)
op(f"atom{{,.global,.shared}}.cas.{{b128,{_BITS}}}", integers.compare_and_swap)
op("atom{,.shared}.arrive.u64 mbarrier", words.changed_state(drop=False))
op("atom{,.shared}.arrive_drop.u64 mbarrier", words.changed_state(drop=True))

# --- Words and addresses ---------------------------------------------------------------------
op("mbarrier.pending_count.b64", words.pending_arrivals)
op("mbarrier.init.word", words.initial_state)
op("mbarrier.change.expect", words.expected_change)
op("mbarrier.change.complete", words.completed_change)
op("mbarrier.over", words.is_phase_complete)
op("mbarrier.over.parity", words.is_parity_complete)
op("wmma.address.{row,col}", make=words.lane_address)
op("wmma.column", words.column_address)

OPCODES = tuple(ROWS)[_FIRST:]
"""The opcodes of this part."""
