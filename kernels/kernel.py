"""A kernel of the catalog: its parameters, and the launch that they make on a device.

The checks that are common to all kernels are made here, before anything is compiled or allocated:
the ranges of the parameters, the device's memory, and its limits of blocks and grids. The
function `make_launch` of a kernel makes its specific checks, such as the widest tile.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import (
    NO_CLUSTER,
    Argument,
    Constant,
    Dim3,
    Launch,
    Reference,
    array_arguments,
)
from memlab.text import plural

MAX_INT_INDEXED_ELEMENTS = 2**31 - 1024
"""The most elements of an array with `int` indices: their range less the width of a block, because
the threads beyond the edge of a matrix compute an index too, which must not overflow."""
MAX_SIZE_T_INDEXED_ELEMENTS = 2**63 - 1
"""The most elements of an array with `size_t` indices, more than any memory holds."""

FIRST_WITH_CLUSTERS = (9, 0)
"""The first compute capability with thread block clusters (CUDA C++ Programming Guide, "Thread
Block Clusters")."""
PORTABLE_CLUSTER_BLOCKS, MAX_CLUSTER_BLOCKS = 8, 16
"""The most blocks of a cluster on every device that has clusters; and on H100 and H200 where the
kernel allows a non-portable size, as memlab does (CUDA C++ Programming Guide, "Thread Block
Clusters")."""

_MAX_LISTED_ARRAYS = 8
_ROUNDED_FROM = 10**15  # in messages


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel that the user sets: a whole number, or one of a few words.

    Attributes:
        name: The name in Python and JSON; the command line has dashes for underscores.
        help: A description of one line.
        default: The default value; None if it depends on other parameters or on the device.
        default_text: The default in words if `default` is None.
        minimum: The smallest accepted value.
        maximum: The largest accepted value; None if it depends on the device or there is none.
        accepts: The accepted values in words, if their maximum depends on the device.
        choices: The accepted words; empty for a number.
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
        """The default in words, for help and messages."""
        return self.default_text if self.default is None else str(self.default)

    @property
    def range_label(self) -> str:
        """The accepted values in words, for help and messages."""
        if self.choices:
            return " or ".join(self.choices)
        most = "or more" if self.maximum is None else f"to {self.maximum}"
        return self.accepts or f"{self.minimum} {most}"

    def checked(self, value: object) -> int | str | None:
        """Check a value and return it; return the default for None.

        Args:
            value: A word, where `True` and `False` are `yes` and `no`; or a number as the launch
                options of user kernels take it: `4M`, `2**20`.

        Raises:
            UsageError: The value is not one of the words, or not a whole number in the range.
        """
        if value is None:
            return self.default
        name = self.option.removeprefix("--")
        if self.choices:
            if isinstance(value, bool) and set(self.choices) == {"no", "yes"}:
                value = "yes" if value else "no"
            if value not in self.choices:
                raise UsageError(f"{name} must be {self.range_label}, got {str(value)!r}")
            return str(value)
        number_given = value
        if isinstance(value, str):
            from memlab.kernels.user.expressions import whole_or_text

            number_given = whole_or_text(value)
        try:
            number = operator.index(number_given)  # type: ignore[arg-type]
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
    """The limits of a device for one launch.

    The fields have the names of the device's properties. The defaults, for a device whose limits
    are unknown, hold on every GPU of compute capability 5.0 and later (CUDA C++ Programming
    Guide, "Technical Specifications per Compute Capability"). Memory has no such default.

    Attributes:
        name: The device's name in messages.
        max_threads_per_block: The most threads of a block.
        max_block_dim: The most threads of a block in x, y and z.
        max_grid_dim: The most blocks of a grid in x, y and z.
        max_shared_memory_per_block_bytes: The most shared memory of a block without opt-in, bytes.
        max_shared_memory_per_block_optin_bytes: The most dynamic shared memory of a block after
            opt-in by `cudaFuncAttributeMaxDynamicSharedMemorySize`, bytes.
        total_memory_bytes: Global memory, bytes; None if unknown.
        compute_capability: Major and minor; None if unknown.
        multiprocessor_count: SMs; None if unknown.
    """

    name: str
    max_threads_per_block: int = 1024
    max_block_dim: Dim3 = (1024, 1024, 64)
    max_grid_dim: Dim3 = (2**31 - 1, 65535, 65535)
    max_shared_memory_per_block_bytes: int = 48 * 1024
    max_shared_memory_per_block_optin_bytes: int = 48 * 1024
    total_memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    multiprocessor_count: int | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel of the catalog.

    Attributes:
        name: The name on the command line.
        summary: One line that says how the kernel uses memory.
        source_file: The `.cu` file in the folder of this module.
        parameters: The parameters that the user sets.
        make_launch: Makes the launch from the kernel, its checked parameters (None for one that
            was not set and has no fixed default) and the device's limits.
        max_elements: The most elements of an array that the kernel's indices can address.
        library_file: A file in the same folder whose text follows that of the source, which
            declares what it uses of it; empty for none.
    """

    name: str
    summary: str
    source_file: str
    parameters: tuple[Parameter, ...]
    make_launch: Callable[[Kernel, Mapping[str, Any], Limits], Launch]
    max_elements: int = MAX_INT_INDEXED_ELEMENTS
    library_file: str = ""

    @property
    def source(self) -> str:
        """The CUDA C++ text."""
        from importlib import resources

        folder = resources.files(__package__)
        names = [self.source_file, *([self.library_file] if self.library_file else [])]
        return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)

    def prepare(self, values: Mapping[str, int | str | None], limits: Limits) -> Launch:
        """Make the launch for a device from the user's parameters.

        Args:
            values: Parameters by name; one that is missing or None takes its default.
            limits: The device's limits.

        Raises:
            UsageError: A parameter is unknown or out of range, or the launch exceeds a limit of
                the device; the message names the limit, the value and the next step.
        """
        names = [parameter.name for parameter in self.parameters]
        for name in values:
            if name not in names:
                raise UsageError(
                    f"{self.name} has no parameter {name!r}: {suggest_nearest(name, names)}"
                )
        checked = {
            parameter.name: parameter.checked(values.get(parameter.name))
            for parameter in self.parameters
        }
        launch = self.make_launch(self, checked, limits)
        check_memory(launch, limits)
        _check_index_range(launch, self.max_elements)
        check_geometry(launch, limits)
        check_cluster(launch, limits)
        return launch

    def launch(
        self,
        parameters: Mapping[str, int | str],
        grid: Dim3,
        block: Dim3,
        arguments: tuple[Argument, ...],
        *,
        flop: int,
        reference: Reference,
        tolerance: float,
        compulsory_bytes: int | None = None,
        defines: Mapping[str, str] | None = None,
        constants: tuple[Constant, ...] = (),
        compile_options: tuple[str, ...] = (),
        tile: int | None = None,
        cluster: Dim3 = NO_CLUSTER,
    ) -> Launch:
        """Make a launch of this kernel's source; the arguments are the fields of `Launch`.

        The `__global__` function has the kernel's name, with underscores for dashes.

        Args:
            parameters: See `Launch`.
            grid: See `Launch`.
            block: See `Launch`.
            arguments: See `Launch`.
            flop: See `Launch`.
            reference: Computes the expected values of every output.
            tolerance: See `Launch`.
            compulsory_bytes: See `Launch`; None for the size of all arrays.
            defines: See `Launch`.
            constants: See `Launch`.
            compile_options: See `Launch`.
            tile: See `Launch`.
            cluster: See `Launch`.
        """
        arrays = (*array_arguments(arguments), *constants)
        if compulsory_bytes is None:
            compulsory_bytes = sum(array.nbytes for array in arrays)
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
            references={
                item.name: reference for item in array_arguments(arguments) if item.role == "out"
            },
            tolerance=tolerance,
            tile=tile,
            constants=constants,
            compile_options=compile_options,
            cluster=cluster,
        )


def require_capability(
    kernel: Kernel, limits: Limits, needed: tuple[int, int], what: str, advice: str
) -> None:
    """Refuse a device that lacks what a kernel needs; one of unknown capability passes.

    Args:
        kernel: The kernel.
        limits: The device's limits.
        needed: The first compute capability that has it.
        what: What the kernel needs, for the message.
        advice: What to use instead.

    Raises:
        UsageError: The device's compute capability is lower.
    """
    capability = limits.compute_capability
    if capability is not None and capability < needed:
        raise UsageError(
            f"{kernel.name} needs compute capability {_format_capability(needed)} or later "
            f"({what}); {limits.name} has {_format_capability(capability)}: use {advice}"
        )


def require_wgmma(kernel: Kernel, limits: Limits, advice: str) -> None:
    """Refuse a device without `wgmma`, which GPUs of compute capability 9.0 alone have.

    Args:
        kernel: The kernel.
        limits: The device's limits; one of unknown capability passes.
        advice: What to use instead.

    Raises:
        UsageError: The device has another compute capability.
    """
    capability = limits.compute_capability
    if capability not in (None, (9, 0)):
        raise UsageError(
            f"{kernel.name} needs compute capability 9.0 (wgmma); {limits.name} has "
            f"{_format_capability(capability)}: use {advice}"
        )


def _format_capability(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def check_memory(launch: Launch, limits: Limits) -> None:
    """Refuse arrays that do not fit in the device's memory.

    Raises:
        UsageError: They do not fit; the message names the arrays, the bytes that they need and
            the bytes that the device has.
    """
    available = limits.total_memory_bytes
    needed = sum(buffer.nbytes for buffer in launch.buffers)
    if available is not None and needed > available:
        largest = sorted(launch.buffers, key=lambda buffer: -buffer.nbytes)[:_MAX_LISTED_ARRAYS]
        listed = [
            f"{buffer.name} {' x '.join(map(_number_label, buffer.shape))}"
            for buffer in launch.buffers
            if buffer in largest
        ]
        hidden = len(launch.buffers) - len(listed)
        arrays = ", ".join([*listed, *([f"{hidden} more"] if hidden else [])])
        raise UsageError(
            f"{arrays} need {_bytes_label(needed)} of memory; {limits.name} has "
            f"{_bytes_label(available)}: use smaller sizes"
        )


def _check_index_range(launch: Launch, max_elements: int) -> None:
    for buffer in launch.buffers:
        if buffer.elements > max_elements:
            product = f"{' x '.join(map(str, buffer.shape))} = " if len(buffer.shape) > 1 else ""
            raise UsageError(
                f"{buffer.name} has {product}{buffer.elements} elements; {launch.kernel} "
                f"indexes with 32 bits, up to {max_elements} elements: use smaller sizes"
            )


def check_geometry(launch: Launch, limits: Limits) -> None:
    """Refuse a grid or a block that is too long in one dimension.

    Raises:
        UsageError: It is too long; the message names the extent, the limit and what to change.
    """
    for what, extents, allowed, advice in (
        ("threads per block", launch.block, limits.max_block_dim, "a smaller block"),
        ("blocks", launch.grid, limits.max_grid_dim, "smaller sizes or a larger block"),
    ):
        for axis, extent, limit in zip("xyz", extents, allowed, strict=True):
            if extent > limit:
                raise UsageError(
                    f"the launch has {extent} {what} in {axis}; {limits.name} allows {limit}: "
                    f"use {advice}"
                )


def check_cluster(launch: Launch, limits: Limits) -> None:
    """Refuse clusters that the device does not have, or that do not divide the grid.

    Raises:
        UsageError: The message names the limit, the cluster and what to change.
    """
    if launch.cluster == NO_CLUSTER:
        return
    check_has_clusters(launch.cluster, limits)
    extents = ",".join(map(str, launch.cluster))
    if launch.cluster_blocks > MAX_CLUSTER_BLOCKS:
        raise UsageError(
            f"a cluster has {launch.cluster_blocks} blocks; {limits.name} allows "
            f"{MAX_CLUSTER_BLOCKS}: use a smaller cluster"
        )
    for axis, blocks, each in zip("xyz", launch.grid, launch.cluster, strict=True):
        if blocks % each:
            raise UsageError(
                f"the grid has {blocks} {plural(blocks, 'block')} in {axis}, no multiple of the "
                f"{each} of a cluster ({extents}): use a grid of "
                f"{-(-blocks // each) * each} blocks in {axis}"
            )


def check_has_clusters(cluster: Sequence[int | str], limits: Limits) -> None:
    """Refuse clusters on a device that has none.

    Args:
        cluster: Blocks of a cluster, or expressions.
        limits: The device's limits.

    Raises:
        UsageError: The device has none.
    """
    capability = limits.compute_capability
    if capability is not None and capability < FIRST_WITH_CLUSTERS:
        raise UsageError(
            f"the launch has clusters of {','.join(map(str, cluster))} blocks; {limits.name}, of "
            f"compute capability {capability[0]}.{capability[1]}, has none: choose a device from "
            "9.0 on, as --device h200"
        )


def _bytes_label(size: int) -> str:
    """A size in bytes and in GiB; rounded where no device has as many."""
    if size >= _ROUNDED_FROM:
        return f"{_number_label(size)} bytes"
    return f"{size} bytes ({size / 2**30:.1f} GiB)"


def _number_label(number: int) -> str:
    """A number with all digits, or with three of many."""
    return f"{Decimal(number):.2e}" if number >= _ROUNDED_FROM else str(number)
