"""The functions of CUDA's runtime and of the standard library whose effects are followed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from memlab.kernels.host_code import formulas
from memlab.kernels.host_code.arithmetic import (
    as_number,
    as_pointer,
    combine,
    number_value,
    truncated,
)
from memlab.kernels.host_code.formulas import Formula, number
from memlab.kernels.host_code.machine import Exit, Machine, formula_of, safe
from memlab.kernels.host_code.places import target
from memlab.kernels.host_code.program import spelled_type, text_of
from memlab.kernels.host_code.values import (
    Address,
    Allocation,
    Cell,
    CType,
    FunctionName,
    Number,
    Pointer,
    Record,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from tree_sitter import Node

Handler = Callable[[Machine, Sequence["Node"], "Sequence[str] | None"], Value]

PITCH_BYTES = 512
"""Rows of `cudaMallocPitch` begin at multiples of this on the GPUs of the last ten years (the
property texturePitchAlignment is smaller; the pitch is not documented)."""
DEVICE_PROPERTIES = {"warpSize": 32, "maxThreadsPerBlock": 1024, "major": 9, "minor": 0}
"""The properties that all current GPUs share; of the compute capability, that of the H200."""


def _values(machine: Machine, arguments: Sequence[Node]) -> list[Value]:
    return [machine.evaluate(machine, node) for node in arguments]


def _at(values: Sequence[Value], index: int) -> Value:
    return values[index] if index < len(values) else Unresolved("value")


def _size(machine: Machine, value: Value) -> Formula | None:
    return formula_of(as_number(machine, value, "size") or Unresolved(""))


def _store(machine: Machine, where: Value, value: Value) -> None:
    cell = target(machine, where)
    if cell is not None:
        machine.write(cell, value)


def _allocate(on_device: bool, with_host: bool = False) -> Handler:
    """`cudaMalloc(&p, bytes)` and its relatives."""

    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        values = _values(machine, arguments)
        cell = target(machine, _at(values, 0))
        if cell is not None:
            allocation = Allocation(cell.name, _size(machine, _at(values, 1)), on_device, with_host)
            machine.write(cell, Pointer(allocation, element=_pointee(machine, cell)))
        return number_value(0)

    return handler


def _pointee(machine: Machine, cell: Cell) -> CType | None:
    kind = machine.resolve(cell.type)
    return kind.pointee if kind is not None else None


def _malloc_pitch(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    values = _values(machine, arguments)
    width, height = _size(machine, _at(values, 2)), _size(machine, _at(values, 3))
    row = None
    if width is not None:
        aligned = number(PITCH_BYTES)
        row = safe(lambda: formulas.ceil_quotient(width, aligned) * aligned)
    _store(machine, _at(values, 1), Unresolved("pitch") if row is None else Number(row, "size_t"))
    cell = target(machine, _at(values, 0))
    if cell is not None:
        nbytes = safe(lambda: row * height) if row is not None and height is not None else None
        allocation = Allocation(cell.name, nbytes, True)
        machine.write(cell, Pointer(allocation, element=_pointee(machine, cell)))
    return number_value(0)


def _malloc(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    return Pointer(Allocation("", _size(machine, _at(_values(machine, arguments), 0))))


def _calloc(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    values = _values(machine, arguments)
    product = combine(machine, "*", _at(values, 0), _at(values, 1))
    return Pointer(Allocation("", _size(machine, product)))


def _aligned_alloc(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    return Pointer(Allocation("", _size(machine, _at(_values(machine, arguments), 1))))


def _memcpy(kind_index: int) -> Handler:
    """`cudaMemcpy` and its relatives; the direction is the argument of this number."""

    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        values = _values(machine, arguments)
        source = 2 if kind_index > 4 else 1
        kind = text_of(arguments[kind_index]) if kind_index < len(arguments) else ""
        if not kind.endswith("DeviceToHost"):
            machine.event(_at(values, 0), "filled")
        if not kind.endswith("HostToDevice"):
            machine.event(_at(values, source), "read")
        return number_value(0)

    return handler


def _memset(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    values = _values(machine, arguments)
    value = formula_of(_at(values, 1))
    machine.event(_at(values, 0), "zeroed" if value is not None and value.whole == 0 else "filled")
    return number_value(0)


def _memcpy_to_symbol(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    _values(machine, arguments)
    if arguments:
        machine.constants[text_of(arguments[0]).lstrip("&").partition("[")[0]] = None
    return number_value(0)


def _host_device_pointer(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    values = _values(machine, arguments)
    _store(machine, _at(values, 0), _at(values, 1))
    return number_value(0)


def _properties(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    value = _at(_values(machine, arguments), 0)
    made = Record("cudaDeviceProp")
    for name, known in DEVICE_PROPERTIES.items():
        made.members[name] = Cell(name, number_value(known))
    _store(machine, value, made)
    return number_value(0)


def _stores(known: int) -> Handler:
    """A function that stores a number where its first argument points."""

    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        _store(machine, _at(_values(machine, arguments), 0), number_value(known))
        return number_value(0)

    return handler


def _returns(known: int) -> Handler:
    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        _values(machine, arguments)
        return number_value(known)

    return handler


def _exit(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    raise Exit


def _launch_kernel(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cudaLaunchKernel(kernel, grid, block, pointers to the arguments, shared, stream)`."""
    from memlab.kernels.host_code.calls import record_launch

    values = _values(machine, arguments)
    kernel, listed = _at(values, 0), _at(values, 3)
    if isinstance(kernel, FunctionName) and isinstance(listed, Pointer):
        cells = listed.allocation.elements
        pointed = (cells[index].value for index in sorted(cells))
        given = [each.cell.value if isinstance(each, Address) else each for each in pointed]
        record_launch(machine, kernel, [*values[1:3], _at([*values, number_value(0)], 4)], given)
    return number_value(0)


def _rounding(function: Literal["ceil", "floor"]) -> Handler:
    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        value = as_number(machine, _at(_values(machine, arguments), 0))
        if value is None:
            return Unresolved(function)
        if function == "floor" and value.divisor is not None:
            return truncated(value, "double")
        divisor = value.divisor
        if divisor is not None:
            result = safe(lambda: formulas.ceil_quotient(value.formula, divisor))
        else:
            result = safe(lambda: formulas.rounded(function, value.formula))
        return Unresolved(function) if result is None else Number(result, "double")

    return handler


def _extreme(function: Literal["min", "max"]) -> Handler:
    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        values = [as_number(machine, value) for value in _values(machine, arguments)]
        if len(values) != 2:
            return Unresolved(function)
        first, second = (formula_of(value) if value is not None else None for value in values)
        if first is None or second is None or values[0] is None:
            return Unresolved(function)
        return Number(formulas.extreme(function, first, second), values[0].type)

    return handler


def _real(name: str, compute: Callable[..., float]) -> Handler:
    """A function of real numbers, computed where its arguments are known."""

    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        formulas_ = [formula_of(value) for value in _values(machine, arguments)]
        known = [None if each is None else each.constant for each in formulas_]
        if not known or None in known:
            return Unresolved(name)
        try:
            return number_value(Fraction(compute(*(float(each or 0) for each in known))), "double")
        except (ValueError, OverflowError):
            return Unresolved(name)

    return handler


def _first(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    return as_pointer(_at(_values(machine, arguments), 0))


def _thrust_copy(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    values = _values(machine, arguments)
    machine.event(_at(values, 0), "read")
    machine.event(_at(values, 2), "filled")
    return Unresolved("copy")


def _make_vector(kind: str, count: int) -> Handler:
    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        made = Record(f"{kind}{count}")
        values = _values(machine, arguments)
        for axis, value in zip("xyzw"[:count], values, strict=False):
            made.members[axis] = Cell(axis, value, spelled_type(kind))
        return made

    return handler


_VECTORS = {
    f"make_{kind}{count}": _make_vector(kind, count)
    for kind in ("char", "uchar", "short", "ushort", "int", "uint", "long", "float", "double")
    for count in (1, 2, 3, 4)
}
HANDLERS: dict[str, Handler] = {
    **_VECTORS,
    "cudaMalloc": _allocate(True),
    "cudaMallocAsync": _allocate(True),
    "cudaMallocManaged": _allocate(True, True),
    "cudaMallocHost": _allocate(False, True),
    "cudaHostAlloc": _allocate(False, True),
    "cudaMallocPitch": _malloc_pitch,
    "malloc": _malloc,
    "valloc": _malloc,
    "calloc": _calloc,
    "aligned_alloc": _aligned_alloc,
    "_mm_malloc": _malloc,
    "cudaMemcpy": _memcpy(3),
    "cudaMemcpyAsync": _memcpy(3),
    "cudaMemcpy2D": _memcpy(6),
    "cudaMemcpy2DAsync": _memcpy(6),
    "cudaMemset": _memset,
    "cudaMemsetAsync": _memset,
    "cudaMemcpyToSymbol": _memcpy_to_symbol,
    "cudaMemcpyToSymbolAsync": _memcpy_to_symbol,
    "cudaHostGetDevicePointer": _host_device_pointer,
    "cudaGetSymbolAddress": _host_device_pointer,
    "cudaGetDeviceProperties": _properties,
    "cudaGetDeviceCount": _stores(1),
    "cudaGetDevice": _stores(0),
    "cudaLaunchKernel": _launch_kernel,
    "cudaLaunchCooperativeKernel": _launch_kernel,
    # They neither fill nor read what they get a pointer to.
    **dict.fromkeys(("cudaFree", "cudaFreeAsync", "cudaFreeHost", "free", "delete"), _returns(0)),
    **dict.fromkeys(("cudaMemPrefetchAsync", "cudaMemAdvise", "printf"), _returns(0)),
    "exit": _exit,
    "abort": _exit,
    "_exit": _exit,
    # Without arguments on the command line there are no options.
    "getopt": _returns(-1),
    "getopt_long": _returns(-1),
    "checkCmdLineFlag": _returns(0),
    "getCmdLineArgumentString": _returns(0),
    "findCudaDevice": _returns(0),
    "gpuGetMaxGflopsDeviceId": _returns(0),
    **dict.fromkeys(("ceil", "ceilf", "ceill"), _rounding("ceil")),
    **dict.fromkeys(("floor", "floorf"), _rounding("floor")),
    **dict.fromkeys(("min", "fmin", "fminf", "MIN"), _extreme("min")),
    **dict.fromkeys(("max", "fmax", "fmaxf", "MAX"), _extreme("max")),
    **dict.fromkeys(("sqrt", "sqrtf"), _real("sqrt", math.sqrt)),
    **dict.fromkeys(("pow", "powf"), _real("pow", math.pow)),
    **dict.fromkeys(("log2", "log2f"), _real("log2", math.log2)),
    **dict.fromkeys(("log", "logf"), _real("log", math.log)),
    **dict.fromkeys(("fabs", "fabsf", "abs"), _real("abs", abs)),
    **dict.fromkeys(("exp", "expf"), _real("exp", math.exp)),
    "raw_pointer_cast": _first,
    "device_pointer_cast": _first,
    "move": _first,
    "thrust_copy": _thrust_copy,
}
"""By name, what a call does; it takes the arguments and the arguments of a template."""
