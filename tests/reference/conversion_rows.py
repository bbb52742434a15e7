"""The reference of `cvt`."""

from __future__ import annotations

from functools import partial

from tests.reference import arithmetic, conversion, packed_bytes
from tests.reference.rows import ROWS, Function, op

_FIRST = len(ROWS)
_INTEGERS = "s16,u16,s32,u32,s64,u64"
_ALL_INTEGERS = f"s8,u8,{_INTEGERS}"

function: Function

# --- Integers --------------------------------------------------------------------------------
op(
    f"cvt{{,.sat}}.{{{_ALL_INTEGERS}}}.{{{_ALL_INTEGERS}}}",
    make=lambda sat, to, of: conversion.between_integers(to, bool(sat)),
)
op("cvt.pack.sat.{s16,u16}.s32", make=conversion.packed_integers)
op("cvt.pack.sat.{s8,u8,s4,u4,s2,u2}.s32.b32", make=conversion.packed_integers)
for number, modifiers, whole in (
    ("f32", "{,.ftz}{,.sat}", _ALL_INTEGERS),
    ("f16,f64", "{}{,.sat}", _ALL_INTEGERS),
    ("bf16", "{}{}", _INTEGERS),
):
    end = f"{modifiers}.{{{number}}}.{{{whole}}}"
    op(f"cvt.{{rn,rz,rm,rp}}{end}", make=conversion.from_integer_with)
    end = f"{modifiers}.{{{whole}}}.{{{number}}}"
    op(f"cvt.{{rni,rzi,rmi,rpi}}{end}", make=conversion.to_integer_with)

# --- Floating point --------------------------------------------------------------------------
for number, modifiers in (("f32", "{,.ftz}{,.sat}"), ("f16", "{}{,.sat}"), ("f64", "{}{,.sat}")):
    op(f"cvt.{{rni,rzi,rmi,rpi}}{modifiers}.{number}.{number}", make=conversion.to_integral)
op(
    "cvt.{rni,rzi,rmi,rpi}.bf16.bf16",
    make=lambda mode: arithmetic.without_rounding(conversion.TO_INTEGRAL[mode], "bf16"),
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
    for pair in pairs.split():
        make = partial(conversion.between_floats_with, *pair.split("."))
        op(f"{pattern}.{pair}", make=make)
for number in ("f16", "bf16"):
    for mode in ("rn", "rz"):
        function = conversion.between_floats(number, "f32", mode)
        positive = conversion.with_relu(function, number)
        op(f"cvt.{mode}.relu.{number}.f32", positive)
        op(f"cvt.{mode}.{number}x2.f32", conversion.convert_pair(function))
        op(f"cvt.{mode}.relu.{number}x2.f32", conversion.convert_pair(positive))
        for relu, exact in (("", function), (".relu", positive)):
            finite = conversion.with_finite_sources(exact, number)
            op(f"cvt.{mode}{relu}.satfinite.{number}.f32", finite)
            op(f"cvt.{mode}{relu}.satfinite.{number}x2.f32", conversion.convert_pair(finite))
for number in packed_bytes.FP8_FORMATS:
    for relu in ("", ".relu"):
        encode = packed_bytes.encode_fp8_pair(number, bool(relu))
        op(f"cvt.rn.satfinite{relu}.{number}x2.f32", encode)
        op(f"cvt.rn.satfinite{relu}.{number}x2.f16x2", packed_bytes.encode_from_halves(encode))
        op(f"cvt.rn{relu}.f16x2.{number}x2", packed_bytes.decode_fp8_pair(number, bool(relu)))
op("cvt.{rna,rn,rz}.tf32.f32", make=conversion.to_tf32)
rounded = conversion.with_finite_sources(conversion.to_tf32("rna"), "tf32")
op("cvt.rna.satfinite.tf32.f32", rounded)

OPCODES = tuple(ROWS)[_FIRST:]
"""The opcodes of this part."""
