"""Instructions that random programs draw from, by the kinds of their operands.

A form is an opcode with `{a,b}` where it varies, the kind of its destination and the kinds of its
sources. The kinds keep numbers of different meaning apart, so that no integer ever depends on the
payload of a NaN, which PTX does not define:

- `r`, `l`, `h`: integers of 32, 64 and 16 bits;
- `f`, `d`, `x`, `y`: `f32`, `f64`, `f16` and `bf16`; `X`, `Y`: pairs of `f16` and of `bf16`;
- `p`: a predicate.

Sources may also be `P` (a predicate or its negation), `s` (a shift amount), `b` (a bit position)
and `#` (a byte as a literal).

Approximations whose last bit may differ from one implementation to another (sine, cosine, powers
and logarithms of two, hyperbolic tangent) are left out: see `recorded.has_loose_floats`.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple


class Form(NamedTuple):
    """An opcode and the kinds of its operands."""

    opcode: str
    to: str
    of: str


def expand(pattern: str) -> list[str]:
    """The opcodes that a pattern stands for, `a.{b,c}`."""
    pieces = re.split(r"\{([^}]*)\}", pattern)
    choices = [piece.split(",") if number % 2 else [piece] for number, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _forms(text: str) -> tuple[tuple[Form, ...], ...]:
    """The forms of each line `pattern to of`; a line is drawn first, then one of its opcodes."""
    lines = (line.split() for line in text.strip().splitlines())
    return tuple(
        tuple(Form(opcode, to, of) for opcode in expand(pattern)) for pattern, to, of in lines
    )


FAMILIES: dict[str, tuple[tuple[Form, ...], ...]] = {
    "integers": _forms("""
        {add,sub,mul.lo,mul.hi,min,max}.{s32,u32} r rr
        {div,rem}.{s32,u32} r rr
        mad.{lo,hi}.{s32,u32} r rrr
        {add,sub}.sat.s32 r rr
        mad.hi.sat.s32 r rrr
        {abs,neg}.s32 r r
        sad.{s32,u32} r rrr
        mul24.{lo,hi}.{s32,u32} r rr
        mad24.{lo,hi}.{s32,u32} r rrr
        dp4a.{u32,s32}.{u32,s32} r rrr
        dp2a.{lo,hi}.{u32,s32}.{u32,s32} r rrr
        vabsdiff{2,4}.u32.u32.u32{,.add} r rrr
        {add,min,max}.{u16x2,s16x2} r rr
        {min,max}.relu.s32 r rr
        {add,sub,mul.lo,mul.hi,min,max}.{s64,u64} l ll
        {div,rem}.{s64,u64} l ll
        mad.{lo,hi}.{s64,u64} l lll
        {abs,neg}.s64 l l
        sad.{s64,u64} l lll
        {add,sub,mul.lo,mul.hi,min,max}.{s16,u16} h hh
        {div,rem}.{s16,u16} h hh
        mad.{lo,hi}.{s16,u16} h hhh
        {abs,neg}.s16 h h
        mul.wide.{s32,u32} l rr
        mul.wide.{s16,u16} r hh
        mad.wide.{s32,u32} l rrl
        mad.wide.{s16,u16} r hhr
    """),
    "bits": _forms("""
        {and,or,xor}.b32 r rr
        {and,or,xor}.b64 l ll
        {and,or,xor}.b16 h hh
        {not,cnot}.b32 r r
        {not,cnot}.b64 l l
        {not,cnot}.b16 h h
        shl.b32 r rs
        shr.{b32,u32,s32} r rs
        shl.b64 l ls
        shr.{u64,s64} l ls
        shl.b16 h hs
        shr.{u16,s16} h hs
        shf.{l,r}.{wrap,clamp}.b32 r rrs
        {popc,clz}.b32 r r
        {popc,clz}.b64 r l
        brev.b32 r r
        brev.b64 l l
        bfind{,.shiftamt}.{s32,u32} r r
        bfind{,.shiftamt}.{s64,u64} r l
        bfe.{s32,u32} r rbb
        bfe.{s64,u64} l lbb
        bfi.b32 r rrbb
        bfi.b64 l llbb
        bmsk.{clamp,wrap}.b32 r bb
        szext.{clamp,wrap}.{s32,u32} r rb
        lop3.b32 r rrr#
        prmt.b32 r rrr
        prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16} r rrr
    """),
    "conversions": _forms("""
        cvt.{u32,s32}.{u16,s16} r h
        cvt.{u16,s16}.{u32,s32} h r
        cvt.{u64,s64}.{u32,s32} l r
        cvt.{u32,s32}.{u64,s64} r l
        cvt{,.sat}.{u8,s8}.{u32,s32} r r
        cvt.sat.{u16,s16}.{u32,s32} h r
        cvt.sat.{u32,s32}.{u64,s64} r l
        cvt.pack.sat.{s16,u16}.s32 r rr
        cvt.{rn,rz,rm,rp}.f32.{u32,s32} f r
        cvt.{rn,rz,rm,rp}.f32.{u64,s64} f l
        cvt.{rni,rzi,rmi,rpi}{,.ftz}.{u32,s32}.f32 r f
        cvt.{rni,rzi}.{u64,s64}.f32 l f
        cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.f32.f32 f f
    """),
    "f32": _forms("""
        {add,sub,mul}.f32 f ff
        {add,sub,mul}{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 f ff
        fma{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 f fff
        fma.rn.f32 f fff
        div{.rn,.rz,.rm,.rp}{,.ftz}.f32 f ff
        {rcp,sqrt}{.rn,.rz,.rm,.rp}{,.ftz}.f32 f f
        div.{approx,full}{,.ftz}.f32 f ff
        {rcp,sqrt,rsqrt}.approx{,.ftz}.f32 f f
        {neg,abs}{,.ftz}.f32 f f
        {min,max}{,.ftz}{,.NaN}.f32 f ff
        cvt.rna.tf32.f32 f f
        slct.f32.s32 f ffr
        slct.f32.f32 f fff
    """),
    "f64": _forms("""
        {add,sub,mul}{,.rn}.f64 d dd
        fma.rn.f64 d ddd
        div.rn.f64 d dd
        {rcp,sqrt}.rn.f64 d d
        rcp.approx.ftz.f64 d d
        {neg,abs}.f64 d d
        {min,max}.f64 d dd
        cvt{.rn,.rz,.rm,.rp}.f32.f64 f d
        cvt.f64.f32 d f
        cvt.rn.f64.{s32,u32} d r
        cvt.{rn,rz,rm,rp}.f64.{s64,u64} d l
        cvt.{rni,rzi,rmi,rpi}.{s32,u32}.f64 r d
        cvt.rzi.{s64,u64}.f64 l d
        slct.f64.s32 d ddr
    """),
    "directed f64": _forms("""
        {add,sub,mul}{.rz,.rm,.rp}.f64 d dd
        fma{.rz,.rm,.rp}.f64 d ddd
        div{.rz,.rm,.rp}.f64 d dd
        {rcp,sqrt}{.rz,.rm,.rp}.f64 d d
    """),
    "halves": _forms("""
        {add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16 x xx
        fma.rn{,.ftz}{,.sat}.f16 x xxx
        fma.rn.relu.f16 x xxx
        {min,max}{,.NaN}.f16 x xx
        {neg,abs}.f16 x x
        {add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16x2 X XX
        fma.rn{,.ftz}{,.sat}.f16x2 X XXX
        fma.rn.relu.f16x2 X XXX
        {min,max}{,.NaN}.f16x2 X XX
        {add,sub,mul}{,.rn}.bf16 y yy
        fma.rn.bf16 y yyy
        {min,max}{,.NaN}.bf16 y yy
        {add,sub,mul}{,.rn}.bf16x2 Y YY
        fma.rn{,.relu}.bf16x2 Y YYY
        {min,max}{,.NaN}.bf16x2 Y YY
        cvt.{rn,rz,rm,rp}{,.sat}.f16.f32 x f
        cvt{,.ftz}{,.sat}.f32.f16 f x
        cvt.{rn,rz,rm,rp}.bf16.f32 y f
        cvt.f32.bf16 f y
        cvt.{rn,rz}.f16x2.f32 X ff
        cvt.{rn,rz}{,.relu}.bf16x2.f32 Y ff
        cvt.{rni,rzi,rmi,rpi}.{s32,u32}.f16 r x
        cvt.{rn,rz}.f16.{s32,u32} x r
        cvt.rn.bf16.f16 y x
        setp.{eq,ne,lt,le,gt,ge,ltu,geu,nan,num}.f16 p xx
        setp.{eq,ne,lt,le,gt,ge,ltu,geu,nan,num}.bf16 p yy
        set.{eq,lt,geu}.{u32,s32}.f16 r xx
    """),
    "predicates": _forms("""
        setp.{eq,ne,lt,le,gt,ge}.{s32,u32} p rr
        setp.{lo,ls,hi,hs}.u32 p rr
        setp.{eq,ne,lt,le,gt,ge}.{s64,u64} p ll
        setp.{eq,ne,lt,le,gt,ge}.{s16,u16} p hh
        setp.{eq,ne,lt,le,gt,ge}.{and,or,xor}.{s32,u32} p rrP
        setp.{eq,ne,lt,le,gt,ge}.{and,or,xor}.{s64,u64} p llP
        setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f32 p ff
        setp.{eq,lt,ge,neu,nan}.{and,or,xor}.f32 p ffP
        {and,or,xor}.pred p pp
        not.pred p p
        selp.{b32,s32} r rrp
        selp.u64 l llp
        selp.b16 h hhp
        selp.f32 f ffp
        set.{eq,ne,lt,le,gt,ge}.{u32,s32}.{s32,u32} r rr
        set.{eq,lt,ge,num}.f32.{f32} f ff
        set.{eq,lt,ge,nan}.u32.f32 r ff
        slct.{b32,u32}.s32 r rrr
        slct.s64.s32 l llr
        testp.{finite,infinite,number,notanumber,normal,subnormal}.f32 p f
    """),
}
"""The forms by family, line by line."""

WIDTH_BYTES = {"r": 4, "l": 8, "h": 2, "f": 4, "d": 8, "x": 2, "y": 2, "X": 4, "Y": 4}
"""Bytes of a register of each kind but `p`."""

INTEGER_KINDS = "rlh"
"""The kinds that may be written as literals of any bits."""

EDGE_INTEGERS = (0, 1, 2, 3, 5, 7, 16, 31, 32, 33, 100, 255, 4097, 65535, 0x7FFFFFFF, -1, -2, -7)
EDGE_INTEGERS_64 = (*EDGE_INTEGERS, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 62) - 5)
FLOAT_LITERALS = {
    "f": (
        *("0f00000000", "0f80000000", "0f3F800000", "0fBFC00000", "0f40490FDB", "0f3DCCCCCD"),
        *("0f7F800000", "0f00400000", "0f4B000001", "0fC2F60000"),
    ),
    "d": (
        *("0d0000000000000000", "0d3FF0000000000000", "0dBFE0000000000000"),
        *("0d400921FB54442D18", "0d3FB999999999999A", "0d7FF0000000000000", "0d4330000000000001"),
    ),
}
"""Literals of the kinds that have any."""
