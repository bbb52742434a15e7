"""The reference of floating point, halves and their atomic sums."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.reference import arithmetic
from tests.reference.rows import ROWS, Function, op

_FIRST = len(ROWS)
_MODES = ".rn,.rz,.rm,.rp"

function: Function


def _operation(name: str, ptx_type: str, mode: str, ftz: str = "", sat: str = "") -> Function:
    exact = arithmetic.rounded_operation(name, ptx_type, mode[1:] or "rn")
    return arithmetic.with_modifiers(exact, ftz, sat)


def _mixed(name: str, narrow: str, mode: str, sat: str) -> Function:
    """An operation of float32 whose sources but the last are halves."""
    function = _operation(name, "f32", mode, "", sat)

    def run(*sources: arithmetic.LaneValues) -> arithmetic.LaneValues:
        *halves, last = sources
        wide = (arithmetic.to_float64(half, narrow).astype(np.float32) for half in halves)
        return function(*wide, last)

    return run


def _extreme(extreme: Function, ftz: str, nan: str, number: str) -> Function:
    return arithmetic.with_modifiers(partial(extreme, ptx_type=number, nan=bool(nan)), ftz)


def _positive(function: Function, ptx_type: str) -> Function:
    def run(*sources: arithmetic.LaneValues) -> arithmetic.LaneValues:
        result = function(*sources)
        value = arithmetic.to_float64(result, ptx_type)
        return np.where(value <= 0, result.dtype.type(0), result)

    return run


# --- Floating point --------------------------------------------------------------------------
for name in ("add", "sub", "mul"):
    op(f"{name}{{,{_MODES}}}{{,.ftz}}{{,.sat}}.f32", make=partial(_operation, name, "f32"))
    op(f"{name}{{,{_MODES}}}.f64", make=partial(_operation, name, "f64"))
for name in ("fma", "mad"):
    op(f"{name}{{{_MODES}}}{{,.ftz}}{{,.sat}}.f32", make=partial(_operation, "fma", "f32"))
    op(f"{name}{{{_MODES}}}.f64", make=partial(_operation, "fma", "f64"))
for name in ("div", "rcp", "sqrt"):
    op(f"{name}{{{_MODES}}}{{,.ftz}}.f32", make=partial(_operation, name, "f32"))
    op(f"{name}{{{_MODES}}}.f64", make=partial(_operation, name, "f64"))
for name, function in {"add": np.add, "sub": np.subtract, "mul": np.multiply}.items():
    op(f"{name}{{,.rn}}.f32x2", arithmetic.over_packed_parts(function, "f4"))
    flushed = arithmetic.with_ftz(function)
    op(f"{name}{{,.rn}}.ftz.f32x2", arithmetic.over_packed_parts(flushed, "f4"))
op("fma.rn.f32x2", arithmetic.over_packed_parts(arithmetic.fma_f32, "f4"))
op("neg{,.ftz}.f32", make=partial(arithmetic.with_modifiers, np.negative))
op("abs{,.ftz}.f32", make=partial(arithmetic.with_modifiers, np.abs))
op("neg.f64", np.negative)
op("abs.f64", np.abs)
op("copysign.{f32,f64}", lambda a, b: np.copysign(b, a))
op(
    "testp.{finite,infinite,number,notanumber,normal,subnormal}.{f32,f64}",
    make=lambda test, _: arithmetic.TESTP_FUNCTIONS[test],
)
for name, function in {"min": arithmetic.minimum, "max": arithmetic.maximum}.items():
    op(f"{name}{{,.ftz}}{{,.NaN}}.{{f32}}", make=partial(_extreme, function))
    op(f"{name}{{}}{{}}.{{f64}}", make=partial(_extreme, function))

# --- Approximations --------------------------------------------------------------------------
for name, function in {
    "div.approx": arithmetic.approximate_quotient,
    "div.full": np.divide,
    "rcp.approx": np.reciprocal,
    "sqrt.approx": np.sqrt,
    "rsqrt.approx": arithmetic.inverse_root,
    "sin.approx": np.sin,
    "cos.approx": np.cos,
    "lg2.approx": np.log2,
    "ex2.approx": np.exp2,
}.items():
    rounded = arithmetic.rounded_from_float64(function)
    op(f"{name}.f32", rounded)
    op(f"{name}.ftz.f32", arithmetic.with_ftz(rounded))
op("tanh.approx.f32", arithmetic.rounded_from_float64(np.tanh))
op("rcp.approx.ftz.f64", arithmetic.upper_half(np.reciprocal))
op("rsqrt.approx.ftz.f64", arithmetic.upper_half(arithmetic.inverse_root))
op("rsqrt.approx.f64", arithmetic.inverse_root)

# --- Halves ----------------------------------------------------------------------------------
for number, part in {"f16": "f2", "bf16": "u2"}.items():
    packed = partial(arithmetic.over_packed_parts, part=part)
    modifiers = "{,.ftz}{,.sat}" if number == "f16" else "{}{}"
    for name in ("add", "sub", "mul", "fma"):
        pattern = f"{name}{'{.rn}' if name == 'fma' else '{,.rn}'}{modifiers}.{number}"
        make = partial(_operation, name, number)
        op(pattern, make=make)
        op(f"{pattern}x2", make=lambda *chosen, make=make, packed=packed: packed(make(*chosen)))
    functions = {
        "fma.rn.relu": _positive(arithmetic.rounded_operation("fma", number), number),
        "neg": arithmetic.without_rounding(np.negative, number),
        "abs": arithmetic.without_rounding(np.abs, number),
        "tanh.approx": arithmetic.rounded_from_float64(np.tanh, number),
        "ex2.approx": arithmetic.rounded_from_float64(np.exp2, number),
    }
    if number == "f16":
        for name, function in (("neg", np.negative), ("abs", np.abs)):
            flushed = arithmetic.without_rounding(function, number)
            functions[f"{name}.ftz"] = arithmetic.with_ftz(flushed)
    if number == "bf16":
        functions["ex2.approx.ftz"] = functions.pop("ex2.approx")
    for nan in ("", ".NaN"):
        for name, extreme in {"min": arithmetic.minimum, "max": arithmetic.maximum}.items():
            seen_as = "f16" if number == "f16" else "f32"
            function = partial(extreme, ptx_type=seen_as, nan=bool(nan))
            functions[f"{name}{nan}"] = arithmetic.without_rounding(function, number)
    for name, function in functions.items():
        op(f"{name}.{number}", function)
        op(f"{name}.{number}x2", packed(function))
    total = arithmetic.rounded_operation("add", number) if number == "bf16" else np.add
    for kind, function in {number: total, f"{number}x2": packed(total)}.items():
        op(f"{{atom,red}}{{,.global,.shared}}.add.noftz.{kind}", function)
        counts = {"f16": "2,4,8", "bf16": "2,4,8"}.get(kind, "2,4")
        op(f"{{atom,red}}{{,.global}}.add.noftz.v{{{counts}}}.{kind}", function)
    for name in ("add", "sub", "fma"):
        modes = f"{{{_MODES}}}" if name == "fma" else f"{{,{_MODES}}}"
        op(f"{name}{modes}{{,.sat}}.f32.{number}", make=partial(_mixed, name, number))

OPCODES = tuple(ROWS)[_FIRST:]
"""The opcodes of this part."""
