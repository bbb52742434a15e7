"""The launch of a user kernel, made of its options and the compiled kernel's signature."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.kernel import check_cluster, check_geometry, check_memory
from memlab.kernels.launch import (
    TENSOR_MAP_BYTES,
    Argument,
    Buffer,
    Constant,
    Dim3,
    InMemoryArray,
    Launch,
    SingleValue,
    Structure,
    array_arguments,
)
from memlab.kernels.user import symbols
from memlab.kernels.user.arguments import array_files, tensor_maps
from memlab.kernels.user.arguments.binding import bind_arguments, with_arrays
from memlab.kernels.user.arguments.fills import member_path, parse_fill, parse_member_fills
from memlab.kernels.user.arguments.hints import describe_parameters
from memlab.kernels.user.arguments.parsing import parse_specification
from memlab.kernels.user.arguments.specifications import (
    NUMPY_DTYPES,
    TENSOR_MAP,
    ArraySpecification,
    ConstantMaps,
    ConstantValues,
    TensorMapSpecification,
)
from memlab.kernels.user.arguments.typed_binding import structure_dtype
from memlab.kernels.user.compiler_flags import flag_options
from memlab.kernels.user.kernel import compile_options, parse_defines
from memlab.kernels.user.launch_options import RECORDED_OPTIONS

if TYPE_CHECKING:
    from memlab.kernels.kernel import Limits
    from memlab.kernels.signature import LaunchBounds, ModuleVariable, Signature
    from memlab.kernels.user.compiled_source import CompiledSource
    from memlab.kernels.user.kernel import UserKernel

DEFAULT_TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
"""Relative tolerances by the type of an output, for rounding in sums of some thousand terms where
no error bound is known; whole numbers must be equal."""


def make_user_launch(
    kernel: UserKernel,
    signature: Signature,
    source: str,
    limits: Limits,
    *,
    executed: bool = True,
    compiled: CompiledSource | None = None,
) -> Launch:
    """Make the launch of a user kernel on a device; its outputs have no references yet.

    Args:
        kernel: The kernel and its launch options, without expressions: see `symbols.evaluated`.
        signature: Its parameters, variables and launch bounds, as compiled.
        source: The text of its file.
        limits: The device's limits.
        executed: Whether it will run; if not, neither a grid nor arguments are needed.
        compiled: The compiled kernel, where it comes as PTX.

    Raises:
        UsageError: An option is missing, an argument does not suit its parameter, or the launch
            exceeds a limit of the device.
    """
    name = _storable_text(
        kernel.name or f"{Path(kernel.source).name}:{kernel.entry or signature.name}"
    )
    if executed and signature.parameters and not kernel.args and kernel.layout is None:
        raise UsageError(_missing_arguments_message(kernel, signature))
    passed = kernel.args if kernel.layout is None else kernel.layout.arguments
    arguments = bind_arguments(passed, signature.parameters) if passed or executed else ()
    if kernel.layout is not None:
        arguments = tuple(_renamed(argument, kernel.layout.names) for argument in arguments)
    constants = _with_maps(_parse_constants(kernel, signature), arguments)
    maps = (item for constant in constants for _, item in constant.members)
    buffers = list(array_arguments((*arguments, *maps)))
    _check_name_conflicts(buffers, signature)
    unfilled = unfilled_constants(kernel, signature, source) if executed else ()
    cluster = _dim3("cluster", kernel.cluster or signature.bounds.cluster or (1,), name)
    launch = Launch(
        kernel=name,
        parameters=_recorded_parameters(kernel, unfilled),
        source=source,
        source_name=compiled.source_name if compiled else kernel.source,
        entry=signature.linkage_name,
        name_expression=signature.name_expression,
        defines=parse_defines(kernel),
        compile_options=compile_options(kernel),
        grid=_dim3("grid", kernel.grid or (() if executed else (1,)), name),
        block=_dim3("block", kernel.block, name),
        dynamic_shared_bytes=int(kernel.shared),
        arguments=arguments,
        flop=None,
        compulsory_bytes=sum(
            buffer.nbytes * (2 if buffer.role == "inout" else 1) for buffer in buffers
        ),
        references={},
        tolerance=kernel.tolerance or 0.0,
        tolerances={
            name: DEFAULT_TOLERANCES.get(dtype, 0.0)
            for buffer in buffers
            for name, dtype in _number_types(buffer)
            if kernel.tolerance is None and buffer.role != "in"
        },
        error_scale="rms",
        constants=constants,
        ptx=compiled.ptx if compiled else "",
        cubin=compiled.cubin if compiled else b"",
        cubin_compiler=compiled.cubin_compiler if compiled else "",
        given=_given_arguments(kernel, arguments),
        cluster=cluster,
    )
    check_memory(launch, limits)
    check_geometry(launch, limits)
    if executed:
        check_cluster(launch, limits)
    _check_block_size(launch, limits)
    _check_launch_bounds(launch, signature.bounds)
    return launch


def _number_types(buffer: Buffer) -> Iterator[tuple[str, str]]:
    """The names and types of an array's numbers: `y`, of structures `p.corner.x`."""
    if buffer.structure is None:
        yield buffer.name, buffer.dtype
        return
    for path in buffer.structure.numbers:
        yield f"{buffer.name}.{member_path(path)}", path[-1].dtype


def _renamed(argument: Argument, names: Mapping[str, str]) -> Argument:
    """An argument whose arrays have other names."""
    if isinstance(argument, Structure):
        members = tuple(
            (offset, replace(member, name=names.get(member.name, member.name)))
            for offset, member in argument.members
        )
        return replace(argument, members=members)
    return replace(argument, name=names.get(argument.name, argument.name))


def _given_arguments(kernel: UserKernel, arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments that stand for those of the user; none where no package lays them out."""
    if kernel.layout is None:
        return ()
    by_name: dict[str, Argument] = {argument.name: argument for argument in arguments}
    by_name |= {array.name: array for array in array_arguments(arguments)}
    return tuple(by_name[name] for name in kernel.layout.given)


def _missing_arguments_message(kernel: UserKernel, signature: Signature) -> str:
    """The message for a user who has only named a kernel and passed no arguments."""
    by_hand = "give --grid, --block and one --arg for each, in this order"
    by_init = f"or let 'memlab init {shlex.quote(kernel.source)}' write them into a file"
    return (
        f"{kernel.target} takes {describe_parameters(signature.parameters)}, and none are given: "
        + (by_hand if kernel.name else f"{by_hand}, {by_init}")
    )


def _parse_constants(kernel: UserKernel, signature: Signature) -> tuple[Constant, ...]:
    """Parse the options `--const`; of a name given twice the last counts.

    Raises:
        UsageError: There is no such variable, its elements are not numbers, or the fill does not
            suit it.
    """
    variables = {variable.name: variable for variable in signature.variables}
    constants = {}
    for given in kernel.constants:
        text = given if isinstance(given, str) else given.text
        name, equals, fill = (part.strip() for part in text.partition("="))
        if not equals:
            raise UsageError(f"--const {text!r} has no '=': write NAME=random or NAME=@FILE.npy")
        if name not in variables:
            hint = (
                suggest_nearest(name, variables)
                if variables
                else "it declares none; leave out --const"
            )
            raise UsageError(
                f"{kernel.source} has no __constant__ or __device__ variable {name!r}: {hint}"
            )
        if isinstance(given, ConstantMaps):
            constants[name] = _bind_maps(variables[name], given.maps)
        elif isinstance(given, ConstantValues):
            constants[name] = _given_constant(variables[name], given)
        else:
            constants[name] = _parse_constant(variables[name], fill)
    return tuple(constants.values())


def unfilled_constants(
    kernel: UserKernel, signature: Signature, source: str
) -> tuple[ModuleVariable, ...]:
    """The `__constant__` variables that a kernel uses and nothing gives values: they hold zeros.

    Args:
        kernel: The kernel and its launch options.
        signature: Its variables, as compiled.
        source: The text of its file, where a variable may be given zeros.
    """
    texts = (each if isinstance(each, str) else each.text for each in kernel.constants)
    given = {text.partition("=")[0].strip() for text in texts}
    return tuple(
        variable
        for variable in signature.variables
        if variable.space == "const"
        and variable.linkage_name in signature.used
        and not variable.initialized
        and variable.name not in given
        and not _has_initializer(variable.name.rpartition("::")[2], source)
    )


def _has_initializer(name: str, source: str) -> bool:
    """Whether a source gives a `__constant__` variable values, as in `__constant__ int n = 0;`."""
    declared = rf"__constant__[^;{{}}=]*\b{re.escape(name)}\s*(?:\[[^\]]*\]\s*)*[={{]"
    return re.search(declared, source) is not None


def _with_maps(
    constants: Sequence[Constant], arguments: Sequence[Argument]
) -> tuple[Constant, ...]:
    """The constants, in which each tensor map knows its array, also that of an argument."""
    maps = iter(with_arrays([m for each in constants for _, m in each.members], arguments))
    return tuple(
        replace(each, members=tuple((offset, next(maps)) for offset, _ in each.members))
        for each in constants
    )


def _parse_maps(variable: ModuleVariable, text: str) -> Constant:
    """Tensor maps in `__constant__` memory, written as text.

    Raises:
        UsageError: The text is malformed, or the variable holds other things.
    """
    try:
        given = parse_specification(text)
    except UsageError as error:
        raise UsageError(f"--const {variable.name}: {error}") from None
    assert isinstance(given, ArraySpecification | TensorMapSpecification)  # the word says so
    return _bind_maps(variable, given)


def _bind_maps(
    variable: ModuleVariable, given: ArraySpecification | TensorMapSpecification
) -> Constant:
    """Tensor maps in `__constant__` memory, one or an array of them.

    Raises:
        UsageError: The variable holds other things, or another number of maps.
    """
    label = f"--const {variable.name}"
    maps = tensor_maps.bind_listed_maps(given, tensor_maps.listed_maps(given), variable.name, label)
    nbytes = len(maps) * TENSOR_MAP_BYTES
    if variable.dtype or variable.nbytes != nbytes:
        raise UsageError(
            f"{label} has {variable.nbytes} bytes, and the tensor maps of {given.text!r} have "
            f"{nbytes}: give one for each __constant__ CUtensorMap"
        )
    shape = (len(maps), TENSOR_MAP_BYTES // 8)
    return Constant(variable.linkage_name, shape, "uint64", SingleValue(0), members=maps)


def _parse_constant(variable: ModuleVariable, text: str) -> Constant:
    if text.startswith(TENSOR_MAP):
        return _parse_maps(variable, text)
    if variable.is_tensor_map and text != "zeros":
        raise _takes_maps(variable, text)
    dtype, shape, structure = variable.dtype, variable.shape, variable.structure
    if structure is not None and structure.has_pointers:
        raise UsageError(
            f"--const {variable.name}: its structures have pointers, and memlab fills only "
            "numbers: leave it out, or pass the structure as an argument"
        )
    if structure is not None and (not variable.member_dtype or _gives_structures(text)):
        try:
            fill = parse_member_fills(structure, text)
        except UsageError as error:
            raise UsageError(f"--const {variable.name}: {error}") from None
        return Constant(
            variable.linkage_name,
            shape or (1,),
            structure_dtype(structure),
            fill,
            structure=structure,
        )
    if not dtype and variable.member_dtype:  # a float4 is a row of four floats
        dtype = variable.member_dtype
        element = Buffer("", (1,), NUMPY_DTYPES[dtype], "in").nbytes
        shape = (*shape, variable.nbytes // element // math.prod(shape))
    if not dtype:
        raise UsageError(
            f"--const {variable.name}: its elements are neither numbers nor structures of numbers, "
            "and memlab fills only these: leave it out"
        )
    try:
        fill = parse_fill(dtype, text)
    except UsageError as error:
        raise UsageError(f"--const {variable.name} ({dtype}): {error}") from None
    return Constant(variable.linkage_name, shape or (1,), NUMPY_DTYPES[dtype], fill)


def _takes_maps(variable: ModuleVariable, text: str) -> UsageError:
    return UsageError(
        f"--const {variable.name} takes tensor maps, got {text!r}: write "
        f"'{variable.name}={tensor_maps.constant_example(variable)}'"
    )


def _given_constant(variable: ModuleVariable, given: ConstantValues) -> Constant:
    """A variable that is filled by an array or a list from Python.

    Raises:
        UsageError: It does not suit the variable.
    """
    if variable.is_tensor_map:
        raise _takes_maps(variable, given.text.partition("=")[2])
    values = given.values
    rows = _parse_constant(variable, "random") if values.dtype.names is None else None
    constant = rows or _parse_constant(variable, ",".join(["random"] * _number_count(variable)))
    if values.size != constant.elements:
        raise UsageError(
            f"--const {variable.name} has {constant.elements} elements, got an array of "
            f"{values.size}: give one of shape {list(constant.shape)}"
        )
    if constant.structure is None:
        is_same = values.dtype.name == constant.dtype
        is_whole = values.dtype.kind in "iub"
        suits_list = is_whole or (values.dtype.kind == "f" and "float" in constant.dtype)
        if not (is_same or (given.is_list and suits_list)):
            raise UsageError(
                f"--const {variable.name} is {constant.dtype}, got an array of "
                f"{values.dtype.name}: convert it, array.astype({constant.dtype!r})"
            )
    return replace(constant, fill=InMemoryArray(values.reshape(constant.shape)))


def _number_count(variable: ModuleVariable) -> int:
    """The numbers of a structure."""
    return len(variable.structure.numbers) if variable.structure else 1


def _gives_structures(fill: str) -> bool:
    """Whether a fill of rows of numbers gives them as structures: by member, or in a file."""
    if fill.startswith("@") and fill[1:]:
        return array_files.open_array(fill[1:]).dtype.names is not None
    return "," in fill


def _check_name_conflicts(buffers: Sequence[Buffer], signature: Signature) -> None:
    """Refuse a parameter with the name of a variable: arrays are identified by their names."""
    variable_names = {variable.linkage_name for variable in signature.variables}
    for buffer in buffers:
        if buffer.name in variable_names:
            raise UsageError(
                f"the parameter {buffer.name} has the name of a __constant__ or __device__ "
                "variable: rename one of them"
            )


def _check_block_size(launch: Launch, limits: Limits) -> None:
    max_shared_bytes = max(
        limits.max_shared_memory_per_block_bytes, limits.max_shared_memory_per_block_optin_bytes
    )
    for value, what, allowed, option in (
        (launch.threads_per_block, "threads", limits.max_threads_per_block, "--block"),
        (
            launch.dynamic_shared_bytes,
            "bytes of dynamic shared memory",
            max_shared_bytes,
            "--shared",
        ),
    ):
        if value > allowed:
            raise UsageError(
                f"a block has {value} {what}; {limits.name} allows {allowed}: "
                f"use a smaller {option}"
            )


def _check_launch_bounds(launch: Launch, bounds: LaunchBounds) -> None:
    """Refuse a block size that the kernel was not compiled for, as a GPU's driver does."""
    if bounds.block not in (None, launch.block):
        demanded = ",".join(map(str, bounds.block))
        raise UsageError(
            f"{launch.kernel} is declared __block_size__, for blocks of {demanded} threads in x, "
            f"y, z, not {','.join(map(str, launch.block))}: use --block {demanded}"
        )
    if bounds.cluster not in (None, launch.cluster):
        demanded = ",".join(map(str, bounds.cluster))
        raise UsageError(
            f"{launch.kernel} is declared __cluster_dims__, for clusters of {demanded} blocks in "
            f"x, y, z, not {','.join(map(str, launch.cluster))}: leave out --cluster"
        )
    if 0 < bounds.max_threads < launch.threads_per_block:
        raise UsageError(
            f"a block has {launch.threads_per_block} threads; {launch.kernel} is declared "
            f"__launch_bounds__({bounds.max_threads}), and a GPU refuses more: use a smaller "
            "--block, or raise the bound"
        )


def _recorded_parameters(
    kernel: UserKernel, unfilled: Sequence[ModuleVariable]
) -> dict[str, int | str]:
    """The launch options as they are stored with a run, to tell one launch from another."""
    options: dict[str, int | str] = {
        **symbols.recorded_symbols(kernel),
        "grid": "x".join(map(str, kernel.grid)),
        "block": "x".join(map(str, kernel.block)),
        "cluster": "x".join(map(str, kernel.cluster)),
        "shared": int(kernel.shared),
        "defines": " ".join(kernel.defines),
        "std": kernel.std,
        "max_registers": int(kernel.max_registers or 0),
        "flags": " ".join(flag_options(kernel)),
        "args": " ".join(
            argument if isinstance(argument, str) else argument.text for argument in kernel.args
        ),
        "constants": " ".join(
            [
                *(each if isinstance(each, str) else each.text for each in kernel.constants),
                *(f"{variable.name}=zeros" for variable in unfilled),
            ]
        ),
    }
    return {
        name: _storable_text(value) if isinstance(value, str) else value
        for name, value in options.items()
        if value or name not in RECORDED_OPTIONS
    }


def _storable_text(text: str) -> str:
    """Replace what cannot be stored: text from the system may hold bytes that are not UTF-8."""
    return text.encode(errors="replace").decode()


def _dim3(what: str, extents: tuple[int | str, ...], name: str) -> Dim3:
    if not extents:
        raise UsageError(
            f"{name} has no {what}: add --{what} X[,Y[,Z]], "
            + ("its blocks" if what == "grid" else "the threads of a block")
        )
    x, y, z = (int(extent) for extent in (*extents, 1, 1)[:3])
    return x, y, z
