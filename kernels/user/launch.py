"""The launch of a kernel of one's own, from what was typed and what the compiler says of it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.kernel import check_geometry, check_memory
from memlab.kernels.launch import Buffer, Constant, Dim3, Launch
from memlab.kernels.user.arguments import (
    NUMPY_DTYPES,
    bind_arguments,
    describe_parameters,
    parse_fill,
)
from memlab.kernels.user.kernel import compile_options, parse_defines

if TYPE_CHECKING:
    from memlab.kernels.kernel import Limits
    from memlab.kernels.signature import LaunchBounds, ModuleVariable, Signature
    from memlab.kernels.user.kernel import UserKernel

DEFAULT_TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
"""Relative errors that rounding may explain in sums of some thousand terms, by the type of an
output, where no bound is known; whole numbers must be equal."""


def make_user_launch(
    kernel: UserKernel,
    signature: Signature,
    source: str,
    limits: Limits,
    *,
    executed: bool = True,
) -> Launch:
    """Make the launch of a kernel that a device can take; its outputs have no references yet.

    Args:
        kernel: What was chosen.
        signature: What the compiler says of it.
        source: The text of its file.
        limits: What the device allows.
        executed: Whether it will run; else neither a grid nor arguments are needed.

    Raises:
        UsageError: Something is missing, an argument does not suit its parameter, or the launch
            needs more than the device has.
    """
    name = _storable_text(
        kernel.name or f"{Path(kernel.source).name}:{kernel.entry or signature.name}"
    )
    if executed and signature.parameters and not kernel.args:
        raise UsageError(_missing_arguments_message(kernel, signature))
    arguments = bind_arguments(kernel.args, signature.parameters) if kernel.args or executed else ()
    constants = _parse_constants(kernel, signature)
    buffers = [each for each in arguments if isinstance(each, Buffer)]
    _check_name_conflicts(buffers, signature)
    made = Launch(
        kernel=name,
        parameters=_recorded_parameters(kernel),
        source=source,
        source_name=kernel.source,
        entry=signature.linkage_name,
        name_expression=signature.name_expression,
        defines=parse_defines(kernel),
        compile_options=compile_options(kernel),
        grid=_dim3("grid", kernel.grid or (() if executed else (1,)), name),
        block=_dim3("block", kernel.block, name),
        dynamic_shared_bytes=kernel.shared,
        arguments=arguments,
        flop=None,
        compulsory_bytes=sum(each.nbytes * (2 if each.role == "inout" else 1) for each in buffers),
        references={},
        tolerance=kernel.tolerance or 0.0,
        tolerances={
            each.name: DEFAULT_TOLERANCES.get(each.dtype, 0.0)
            for each in buffers
            if kernel.tolerance is None and each.role != "in"
        },
        error_scale="rms",
        constants=constants,
    )
    check_memory(made, limits)
    check_geometry(made, limits)
    _check_block_size(made, limits)
    _check_launch_bounds(made, signature.bounds)
    return made


def _missing_arguments_message(kernel: UserKernel, signature: Signature) -> str:
    """What to say to who has only named a kernel yet."""
    by_hand = "give --grid, --block and one --arg for each, in this order"
    written = f"or let 'memlab init {shlex.quote(kernel.source)}' write them into a file"
    return (
        f"{kernel.target} takes {describe_parameters(signature.parameters)}, and none are given: "
        + (by_hand if kernel.name else f"{by_hand}, {written}")
    )


def _parse_constants(kernel: UserKernel, signature: Signature) -> tuple[Constant, ...]:
    """What `--const` says, by the variables of the module; of a name given twice the last counts.

    Raises:
        UsageError: There is no such variable, it is none of numbers, or cannot be filled so.
    """
    variables = {each.name: each for each in signature.variables}
    found = {}
    for text in kernel.constants:
        name, equals, filling = (part.strip() for part in text.partition("="))
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
        found[name] = _parse_constant(variables[name], filling)
    return tuple(found.values())


def _parse_constant(variable: ModuleVariable, filling: str) -> Constant:
    dtype, shape = variable.dtype, variable.shape
    if not dtype and variable.member_dtype:  # of float4, rows of four floats
        dtype = variable.member_dtype
        element = Buffer("", (1,), NUMPY_DTYPES[dtype], "in").nbytes
        shape = (*shape, variable.nbytes // element // math.prod(shape))
    if not dtype:
        raise UsageError(
            f"--const {variable.name}: its elements are no numbers, which is all that memlab "
            "fills: leave it out"
        )
    try:
        how = parse_fill(dtype, filling)
    except UsageError as error:
        raise UsageError(f"--const {variable.name} ({dtype}): {error}") from None
    return Constant(variable.linkage_name, shape or (1,), NUMPY_DTYPES[dtype], how)


def _check_name_conflicts(buffers: Sequence[Buffer], signature: Signature) -> None:
    """Refuse a parameter named as a variable: each array is known by its name alone."""
    variables = {each.linkage_name for each in signature.variables}
    for each in buffers:
        if each.name in variables:
            raise UsageError(
                f"the parameter {each.name} has the name of a __constant__ or __device__ "
                "variable: rename one of them"
            )


def _check_block_size(launch: Launch, limits: Limits) -> None:
    most = max(
        limits.max_shared_memory_per_block_bytes, limits.max_shared_memory_per_block_optin_bytes
    )
    for value, what, allowed, cure in (
        (launch.threads_per_block, "threads", limits.max_threads_per_block, "--block"),
        (launch.dynamic_shared_bytes, "bytes of dynamic shared memory", most, "--shared"),
    ):
        if value > allowed:
            raise UsageError(
                f"a block has {value} {what}; {limits.name} allows {allowed}: use a smaller {cure}"
            )


def _check_launch_bounds(launch: Launch, bounds: LaunchBounds) -> None:
    """Refuse a block that the kernel was not compiled for, as a GPU's driver does."""
    if bounds.block not in (None, launch.block):
        demanded = ",".join(map(str, bounds.block))
        raise UsageError(
            f"{launch.kernel} is declared __block_size__, for blocks of {demanded} threads in x, "
            f"y, z, not {','.join(map(str, launch.block))}: use --block {demanded}"
        )
    if 0 < bounds.max_threads < launch.threads_per_block:
        raise UsageError(
            f"a block has {launch.threads_per_block} threads; {launch.kernel} is declared "
            f"__launch_bounds__({bounds.max_threads}), and a GPU refuses more: use a smaller "
            "--block, or raise the bound"
        )


def _recorded_parameters(kernel: UserKernel) -> dict[str, int | str]:
    """What was chosen, as it is kept with the run: all that tells one launch from another."""
    shown: dict[str, int | str] = {
        "grid": "x".join(map(str, kernel.grid)),
        "block": "x".join(map(str, kernel.block)),
        "shared": kernel.shared,
        "defines": " ".join(kernel.defines),
        "std": kernel.std,
        "max_registers": kernel.max_registers or 0,
        "args": " ".join(each if isinstance(each, str) else each.text for each in kernel.args),
        "constants": " ".join(kernel.constants),
    }
    return {
        name: _storable_text(value) if isinstance(value, str) else value
        for name, value in shown.items()
        if value
    }


def _storable_text(words: str) -> str:
    """Words as text that can be stored: the system's may hold bytes that are none."""
    return words.encode(errors="replace").decode()


def _dim3(what: str, extents: tuple[int, ...], name: str) -> Dim3:
    if not extents:
        raise UsageError(
            f"{name} has no {what}: add --{what} X[,Y[,Z]], "
            + ("its blocks" if what == "grid" else "the threads of a block")
        )
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
