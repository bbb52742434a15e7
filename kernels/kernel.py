"""A kernel of the catalog: its parameters, and how they become a launch that a device can take.

What holds for every kernel is checked here, before anything is compiled or allocated: the
parameters' ranges, the device's memory, block and grid limits. A kernel's own `make_launch`
checks what only it knows, such as the widest tile.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import Argument, Buffer, Constant, Dim3, Launch, Reference

MAX_INT_INDEXED_ELEMENTS = 2**31 - 1024
"""Elements of an array that `int` indices reach, less a block's width: the threads beyond the
edge of a matrix compute their position too, and it must not wrap."""
MAX_SIZE_T_INDEXED_ELEMENTS = 2**63 - 1
"""Elements of an array that `size_t` indices reach: memory ends sooner."""


@dataclass(frozen=True)
class Parameter:
    """What the user may choose for a launch: a whole number, or one of a few words.

    Attributes:
        name: As in Python and JSON; the command line has dashes for underscores.
        help: One line that says what it is.
        default: What is used when it is not given; None where that depends on other parameters
            or on the device.
        default_text: The default in words where `default` is None.
        minimum: The least that is accepted.
        maximum: The most that is accepted, where that is the same on every device.
        accepts: The accepted values in words, where the device bounds them from above.
        choices: The words to choose from; empty for a number.
    """

    name: str
    help: str
    default: int | str | None = None
    default_text: str = ""
    minimum: int = 1
    maximum: int | None = None
    accepts: str = ""
    choices: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The option on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def default_label(self) -> str:
        """The default as a person reads it."""
        return self.default_text if self.default is None else str(self.default)

    @property
    def range_label(self) -> str:
        """The accepted values as a person reads them."""
        if self.choices:
            return " or ".join(self.choices)
        most = "or more" if self.maximum is None else f"to {self.maximum}"
        return self.accepts or f"{self.minimum} {most}"

    def checked(self, value: object) -> int | str | None:
        """Return a value that may be used, or the default where None was given.

        Raises:
            UsageError: It is not one of the words, or not a whole number in the range.
        """
        if value is None:
            return self.default
        name = self.option.removeprefix("--")
        if self.choices:
            if value not in self.choices:
                raise UsageError(f"{name} must be {self.range_label}, got {str(value)!r}")
            return str(value)
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise UsageError(
                f"{name} must be a whole number, got {value!r}: use {self.range_label}"
            ) from None
        for limit, word, beyond in (
            (self.minimum, "least", number < self.minimum),
            (self.maximum, "most", self.maximum is not None and number > self.maximum),
        ):
            if beyond:
                raise UsageError(
                    f"{name} must be at {word} {limit}, got {number}: use {self.range_label}"
                )
        return number


@dataclass(frozen=True)
class Limits:
    """What a device allows one launch.

    The fields are named as in the device's properties; where a figure is not known, leave it
    out: the defaults hold on every GPU of compute capability 5.0 and later (CUDA C++ Programming
    Guide, "Technical Specifications per Compute Capability"). Memory has no such default.

    Attributes:
        name: The device, as messages name it.
        max_threads_per_block: Threads of a block.
        max_block_dim: Threads of a block in x, y, z.
        max_grid_dim: Blocks of a grid in x, y, z.
        max_shared_memory_per_block_bytes: Shared memory of a block, without asking for more.
        max_shared_memory_per_block_optin_bytes: The same after
            `cudaFuncAttributeMaxDynamicSharedMemorySize`; dynamic arrays only.
        total_memory_bytes: Global memory; None where it is not known.
        compute_capability: Major and minor; None where it is not known.
    """

    name: str
    max_threads_per_block: int = 1024
    max_block_dim: Dim3 = (1024, 1024, 64)
    max_grid_dim: Dim3 = (2**31 - 1, 65535, 65535)
    max_shared_memory_per_block_bytes: int = 48 * 1024
    max_shared_memory_per_block_optin_bytes: int = 48 * 1024
    total_memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None


@dataclass(frozen=True)
class Kernel:
    """One entry of the catalog.

    Attributes:
        name: As on the command line.
        summary: One line that says what it does with memory.
        source_file: The `.cu` file beside this module.
        parameters: What the user may choose.
        make_launch: Makes the launch from the kernel, its checked parameters (None where one
            was neither given nor has a fixed default) and the device's limits.
        max_elements: The largest array that the kernel's indices reach.
    """

    name: str
    summary: str
    source_file: str
    parameters: tuple[Parameter, ...]
    make_launch: Callable[[Kernel, Mapping[str, Any], Limits], Launch]
    max_elements: int = MAX_INT_INDEXED_ELEMENTS

    @property
    def source(self) -> str:
        """The CUDA C++ text."""
        from importlib import resources

        return resources.files(__package__).joinpath(self.source_file).read_text(encoding="utf-8")

    def prepare(self, values: Mapping[str, int | str | None], limits: Limits) -> Launch:
        """Turn a user's choice into a launch that the device can take.

        Args:
            values: Parameters by name; one that is missing or None takes its default.
            limits: What the device allows.

        Raises:
            UsageError: A parameter is unknown or out of range, or the launch needs more than
                the device has; the message names the limit, the value and the next step.
        """
        names = [parameter.name for parameter in self.parameters]
        for name in values:
            if name not in names:
                raise UsageError(
                    f"{self.name} has no parameter {name!r}: {suggest_nearest(name, names)}"
                )
        chosen = {each.name: each.checked(values.get(each.name)) for each in self.parameters}
        launch = self.make_launch(self, chosen, limits)
        check_memory(launch, limits)
        _check_index_range(launch, self.max_elements)
        check_geometry(launch, limits)
        return launch

    def launch(
        self,
        parameters: Mapping[str, int | str],
        grid: Dim3,
        block: Dim3,
        arguments: tuple[Argument, ...],
        *,
        flop: int,
        compulsory_bytes: int,
        reference: Reference,
        tolerance: float,
        defines: Mapping[str, str] | None = None,
        constants: tuple[Constant, ...] = (),
        compile_options: tuple[str, ...] = (),
        tile: int | None = None,
    ) -> Launch:
        """Make a launch of this kernel's source; the arguments are those of `Launch`.

        The `__global__` function is named like the kernel, with underscores for dashes.
        """
        return Launch(
            kernel=self.name,
            parameters=parameters,
            source=self.source,
            source_name=self.source_file,
            entry=self.name.replace("-", "_"),
            defines=defines or {},
            grid=grid,
            block=block,
            dynamic_shared_bytes=0,
            arguments=arguments,
            flop=flop,
            compulsory_bytes=compulsory_bytes,
            references={each.name: reference for each in arguments if _is_output(each)},
            tolerance=tolerance,
            tile=tile,
            constants=constants,
            compile_options=compile_options,
        )


def _is_output(argument: Argument) -> bool:
    return isinstance(argument, Buffer) and argument.role == "out"


def check_memory(launch: Launch, limits: Limits) -> None:
    """Refuse arrays that the device's memory does not hold.

    Raises:
        UsageError: Names the arrays, the bytes they need and those that there are.
    """
    available = limits.total_memory_bytes
    needed = sum(buffer.nbytes for buffer in launch.buffers)
    if available is not None and needed > available:
        arrays = ", ".join(
            f"{buffer.name} {' x '.join(map(str, buffer.shape))}" for buffer in launch.buffers
        )
        raise UsageError(
            f"{arrays} need {_bytes_label(needed)} of memory; {limits.name} has "
            f"{_bytes_label(available)}: use smaller sizes"
        )


def _check_index_range(launch: Launch, reach: int) -> None:
    for buffer in launch.buffers:
        if buffer.elements > reach:
            product = f"{' x '.join(map(str, buffer.shape))} = " if len(buffer.shape) > 1 else ""
            raise UsageError(
                f"{buffer.name} has {product}{buffer.elements} elements; {launch.kernel} "
                f"indexes with 32 bits, which reach {reach}: use smaller sizes"
            )


def check_geometry(launch: Launch, limits: Limits) -> None:
    """Refuse a grid or a block that is too long in one dimension.

    Raises:
        UsageError: Names the extent, the limit and what to change.
    """
    for what, extents, allowed, cure in (
        ("threads of a block", launch.block, limits.max_block_dim, "a smaller block"),
        ("blocks", launch.grid, limits.max_grid_dim, "smaller sizes or a larger block"),
    ):
        for axis, extent, limit in zip("xyz", extents, allowed, strict=True):
            if extent > limit:
                raise UsageError(
                    f"the launch has {extent} {what} in {axis}; {limits.name} allows {limit}: "
                    f"use {cure}"
                )


def _bytes_label(size: int) -> str:
    return f"{size} bytes ({size / 2**30:.1f} GiB)"
