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
    in_width,
    number_value,
    truncated,
)
from memlab.kernels.host_code.contents import content_of, generated_content
from memlab.kernels.host_code.device_queries import (
    get_attribute,
    get_properties,
    max_active_blocks,
    max_potential_block_size,
    properties_pointer,
)
from memlab.kernels.host_code.formulas import Formula, number
from memlab.kernels.host_code.machine import Exit, Machine, allocation_of, formula_of, safe
from memlab.kernels.host_code.places import target
from memlab.kernels.host_code.program import spelled_type, text_of
from memlab.kernels.host_code.structures import size_of
from memlab.kernels.host_code.tensor_maps import (
    copy_maps,
    encode_im2col,
    encode_tiled,
    find_entry_point,
    maps_at,
    replace_address,
)
from memlab.kernels.host_code.values import (
    INTEGER_TYPES,
    ZEROS,
    Address,
    Allocation,
    Cell,
    Content,
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
    return Pointer(Allocation("", _size(machine, product), content=ZEROS))


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
        copied_from, copied_to = (allocation_of(_at(values, i)) for i in (source, 0))
        content = copied_from.content if copied_from is not None else None
        if not kind.endswith("DeviceToHost"):
            machine.event(_at(values, 0), "filled", content)
        elif copied_to is not None:
            copied_to.content = content
        if not kind.endswith("HostToDevice"):
            machine.event(_at(values, source), "read")
        copy_maps(machine, _at(values, 0), _at(values, source))
        return number_value(0)

    return handler


def _memset(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    values = _values(machine, arguments)
    where, byte = _at(values, 0), formula_of(_at(values, 1))
    whole = None if byte is None else byte.whole
    content = ZEROS if whole == 0 else None
    kind = machine.resolve(where.element) if isinstance(where, Pointer) else None
    if whole and kind is not None and not kind.pointers and kind.name in INTEGER_TYPES:
        repeated = int.from_bytes(bytes([whole % 256] * (INTEGER_TYPES[kind.name][0] // 8)))
        content = Content("number", number(in_width(repeated, kind.name)))
    machine.event(where, "filled", content)
    return number_value(0)


def _memcpy_to_symbol(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    values = _values(machine, arguments)
    if arguments:
        name = text_of(arguments[0]).lstrip("&").partition("[")[0]
        machine.constants[name] = maps_at(_at(values, 1))
    return number_value(0)


def _host_device_pointer(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    values = _values(machine, arguments)
    _store(machine, _at(values, 0), _at(values, 1))
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
        shared = _at([*values, number_value(0)], 4)
        record_launch(machine, kernel, [*values[1:3], shared], _pointed(listed))
    return number_value(0)


def _launch_kernel_ex(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cudaLaunchKernelEx(&configuration, kernel, arguments...)`."""
    values = _values(machine, arguments)
    return _launch_configured(machine, values, values[2:])


def _launch_kernel_ex_c(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cudaLaunchKernelExC(&configuration, kernel, pointers to the arguments)`."""
    values = _values(machine, arguments)
    return _launch_configured(machine, values, _pointed(_at(values, 2)))


def _launch_configured(machine: Machine, values: Sequence[Value], passed: list[Value]) -> Value:
    """Record a launch whose first values are the address of its configuration, and the kernel."""
    from memlab.kernels.host_code.calls import record_launch

    configuration, kernel = target(machine, _at(values, 0)), _at(values, 1)
    if configuration is not None and isinstance(kernel, FunctionName):
        cluster = _cluster_dimension(configuration.value)
        record_launch(machine, kernel, _configured(configuration.value), passed, cluster)
    return number_value(0)


def _configured(configuration: Value) -> list[Value]:
    """Grid, block and shared memory of a `cudaLaunchConfig_t`."""
    if not isinstance(configuration, Record):
        return [Unresolved("grid"), Unresolved("block")]
    members = configuration.members
    shared = members.get("dynamicSmemBytes")
    return [
        *(configuration.member(name).value for name in ("gridDim", "blockDim")),
        number_value(0) if shared is None else shared.value,
    ]


def _cluster_dimension(configuration: Value) -> Value | None:
    """The blocks of a cluster, from the attributes of a `cudaLaunchConfig_t`; None for none."""
    if not isinstance(configuration, Record) or "attrs" not in configuration.members:
        return None
    for attribute in _pointed(configuration.members["attrs"].value):
        if not isinstance(attribute, Record):
            continue
        number, value = (attribute.member(name).value for name in ("id", "val"))
        if isinstance(number, Unresolved) and number.name == "cudaLaunchAttributeClusterDimension":
            return value.member("clusterDim").value if isinstance(value, Record) else None
    return None


def _pointed(listed: Value) -> list[Value]:
    """What a pointer points to: the elements of an array, or what these point to."""
    if isinstance(listed, Address):
        return [listed.cell.value]
    if not isinstance(listed, Pointer):
        return []
    cells = listed.allocation.elements
    pointed = (cells[index].value for index in sorted(cells))
    return [each.cell.value if isinstance(each, Address) else each for each in pointed]


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


def _round(value: float) -> float:
    """Round as C++ does: halves away from zero."""
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _make_unique(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`make_unique<float[]>(n)`."""
    values = _values(machine, arguments)
    name, bracket, _ = (template or ("",))[0].partition("[")
    kind = spelled_type(name)
    size = size_of(machine, kind) if kind is not None else None
    if not bracket or size is None:
        return Unresolved("object")
    count = _size(machine, _at(values, 0))
    nbytes = None if count is None else safe(lambda: count * number(size))
    return Pointer(Allocation("", nbytes), number(0), kind)


def _first(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    return as_pointer(_at(_values(machine, arguments), 0))


def _end(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    """`std::end(v)`."""
    first = _first(machine, arguments, template)
    if not isinstance(first, Pointer) or first.allocation.nbytes is None:
        return Unresolved("end")
    return Pointer(first.allocation, first.allocation.nbytes, first.element)


def _copy(machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None) -> Value:
    """`std::copy(first, last, to)` and that of Thrust."""
    values = _values(machine, arguments)
    source = allocation_of(_at(values, 0))
    machine.event(_at(values, 0), "read")
    machine.event(_at(values, 2), "filled", source.content if source is not None else None)
    return Unresolved("copy")


def _host_memcpy(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`memcpy(to, from, bytes)`."""
    values = _values(machine, arguments)
    source = allocation_of(_at(values, 1))
    machine.event(_at(values, 1), "read")
    machine.event(_at(values, 0), "filled", source.content if source is not None else None)
    copy_maps(machine, _at(values, 0), _at(values, 1))
    return _at(values, 0)


def _fills(kind: Literal["value", "index", "generated"]) -> Handler:
    """A function of the standard library or Thrust that fills memory."""

    def handler(
        machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
    ) -> Value:
        values = _values(machine, arguments)
        where = next((value for value in values if allocation_of(value) is not None), None)
        if where is None:
            return Unresolved("end")
        has_value = allocation_of(_at(values, len(values) - 1)) is None
        content: Content | None = None
        if kind == "generated":
            content = generated_content(machine, values[-1])
        elif kind == "value" and has_value:
            content = content_of(machine, arguments[-1])
        elif kind == "index":
            start = formula_of(values[-1]) if has_value else number(0)
            content = Content("index") if start is not None and not start.terms else None
        machine.event(where, "filled", content)
        return Unresolved("end")

    return handler


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
    "cudaGetDeviceProperties": get_properties,
    **dict.fromkeys(("getCurrentDeviceProperties", "getDeviceProperties"), properties_pointer),
    "cudaDeviceGetAttribute": get_attribute,
    "cuDeviceGetAttribute": get_attribute,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": max_active_blocks,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": max_active_blocks,
    "cudaOccupancyMaxPotentialBlockSize": max_potential_block_size,
    "cudaOccupancyMaxPotentialBlockSizeWithFlags": max_potential_block_size,
    "cudaGetDeviceCount": _stores(1),
    "cudaGetDevice": _stores(0),
    "cudaLaunchKernel": _launch_kernel,
    "cudaLaunchCooperativeKernel": _launch_kernel,
    "cudaLaunchKernelEx": _launch_kernel_ex,
    "cudaLaunchKernelExC": _launch_kernel_ex_c,
    "cuTensorMapEncodeTiled": encode_tiled,
    "cuTensorMapEncodeIm2col": encode_im2col,
    "cuTensorMapReplaceAddress": replace_address,
    "cudaGetDriverEntryPoint": find_entry_point,
    "cudaGetDriverEntryPointByVersion": find_entry_point,
    "cuGetProcAddress": find_entry_point,
    "dlsym": find_entry_point,
    "make_unique": _make_unique,
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
    **dict.fromkeys(("round", "roundf", "lround", "lroundf"), _real("round", _round)),
    **dict.fromkeys(("trunc", "truncf"), _real("trunc", math.trunc)),
    **dict.fromkeys(("rint", "rintf", "nearbyint", "lrint"), _real("rint", round)),
    **dict.fromkeys(("omp_get_num_threads", "omp_get_max_threads"), _returns(1)),
    "omp_get_thread_num": _returns(0),
    "raw_pointer_cast": _first,
    "device_pointer_cast": _first,
    **dict.fromkeys(("move", "begin", "cbegin", "data"), _first),
    **dict.fromkeys(("end", "cend"), _end),
    "copy": _copy,
    "memcpy": _host_memcpy,
    "memset": _memset,
    **dict.fromkeys(("fill", "fill_n", "uninitialized_fill"), _fills("value")),
    **dict.fromkeys(("iota", "sequence"), _fills("index")),
    **dict.fromkeys(("generate", "generate_n"), _fills("generated")),
}
"""By name, what a call does; it takes the arguments and the arguments of a template."""
