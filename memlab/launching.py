"""A kernel, a device and the limits of a run, made ready: every job starts here.

What only user kernels need is imported where they are met: a kernel of the catalog starts sooner.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Real
from os import PathLike, fsdecode
from typing import TYPE_CHECKING, Any, TypeAlias

from memlab.device.budget import EMULATION_TIMEOUT_S, Budget, EmulationTimeoutError
from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import Device, launch_limits, open_device
from memlab.device.gpu.timing import TIMEOUT_S, TimingSettings
from memlab.device.inputs import check_seed
from memlab.device.properties import device_summary
from memlab.errors import DeviceError, MemlabWarning, UsageError
from memlab.kernels import catalog
from memlab.text import plural

if TYPE_CHECKING:
    from memlab.device.compiler.compile import CompiledKernel
    from memlab.device.debug_info.file_launches import FileLaunch
    from memlab.device.measurement import DeviceSummary, Progress
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.launch import Dim3, Launch
    from memlab.kernels.signature import ModuleVariable, Signature
    from memlab.kernels.user.kernel import UserKernel
    from memlab.kernels.user.proposals import ProposedLaunch

_MAX_TRIALS = 6
"""How often the sizes of arrays are tried that only the kernel tells."""

KernelName: TypeAlias = "str | PathLike[str] | UserKernel | Any"
"""A catalog kernel by name, or a user kernel: as `FILE.cu:ENTRY`, by its name in `memlab.toml`,
`memlab.source(text)`, or a kernel object of a Python package (`kernels.python.front_ends`)."""


@dataclass(frozen=True)
class PreparedLaunch:
    """A launch on an open device, ready to run.

    Attributes:
        kernel: The catalog kernel's name, or the user kernel.
        device: The device.
        launch: The launch.
        seed: Seed of the random inputs and of the sample of blocks.
        settings: How a GPU times the launch.
        budget: The time and memory that emulating it may take.
        progress: Called with the current step and its completed fraction; None reports nothing.
        requested: The device's name as the caller gave it; None for the default device.
    """

    kernel: str | UserKernel
    device: Device
    launch: Launch
    seed: int
    settings: TimingSettings
    budget: Budget
    progress: Progress | None = None
    requested: str | int | None = None

    @property
    def properties(self) -> DeviceProperties:
        """The device's figures."""
        return self.device.properties

    @property
    def device_summary(self) -> DeviceSummary:
        """The device as results name it."""
        return device_summary(self.device.properties, self.device.kind, self.device.key)

    def compile(self, launch: Launch | None = None) -> CompiledKernel:
        """Compile the launch, or another one, for the device.

        Raises:
            UsageError: The source does not compile.
            DeviceError: The compiler is not available, or does not know the device.
        """
        return compile_launch(launch or self.launch, self.properties.compute_capability)


def prepare(
    kernel: KernelName,
    parameters: Mapping[str, Any],
    *,
    device: str | int | None = None,
    seed: int = 0,
    samples: int | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
) -> PreparedLaunch:
    """Open a device and prepare a launch for it; the arguments are those of `memlab.run`.

    Raises:
        UsageError: An unknown kernel or device, or a parameter out of range.
        DeviceError: The device or the compiler is not available.
    """
    settings = timing_settings(samples, timeout_s)
    budget = emulation_budget(timeout_s, memory_bytes)
    opened = open_device(device, settings, budget)
    return prepare_on(opened, kernel, parameters, seed, settings, budget, progress, device)


def prepare_on(
    device: Device,
    kernel: KernelName,
    parameters: Mapping[str, Any],
    seed: int,
    settings: TimingSettings,
    budget: Budget,
    progress: Progress | None = None,
    requested: str | int | None = None,
) -> PreparedLaunch:
    """Prepare a launch for a device that is open; the arguments are those of `PreparedLaunch`.

    Raises:
        UsageError, DeviceError: As `prepare`.
    """
    check_seed(seed)
    target, chosen = resolve_kernel(kernel, parameters, device.properties)
    launch = prepare_launch(target, chosen, device.properties)
    return PreparedLaunch(target, device, launch, seed, settings, budget, progress, requested)


def resolve_kernel(
    kernel: KernelName,
    parameters: Mapping[str, Any],
    properties: DeviceProperties,
    *,
    executed: bool = True,
) -> tuple[str | UserKernel, Mapping[str, Any]]:
    """Find the kernel that a name stands for.

    A kernel named by its file that lacks options takes them from its launch in the file.

    Args:
        kernel: The kernel.
        parameters: Its parameters or, for a user kernel, its launch options.
        properties: The device.
        executed: Whether it will run.

    Returns:
        A name with its parameters, or a user kernel with its launch options applied, expressions
        computed, and no parameters. The name need not be in the catalog.

    Raises:
        UsageError: `kernel` is no kernel, a launch option or an expression in one is wrong, or
            `memlab.toml` cannot be used.
    """
    if isinstance(kernel, str) and kernel in catalog.CATALOG:
        return kernel, parameters
    from memlab.kernels.user import kernel as user_kernel
    from memlab.kernels.user import project, symbols

    if isinstance(kernel, user_kernel.UserKernel):
        user = kernel
        if user_kernel.is_object(kernel):
            from memlab.kernels.python.front_ends import with_own_options

            user, parameters = with_own_options(kernel, parameters)
    elif not isinstance(kernel, str | PathLike):
        from memlab.kernels.python.front_ends import front_end

        named = front_end(kernel).named(kernel)
        return resolve_kernel(named, parameters, properties, executed=executed)
    else:
        name = fsdecode(kernel)
        if "__global__" in name:
            raise UsageError(
                "a kernel is named by a text, got CUDA C++: give memlab.source(text), or write it "
                "to a file"
            )
        found = None if name in catalog.CATALOG else project.find_user_kernel(name)
        if found is None:
            return name, parameters
        user = found
    given = user_kernel.apply_launch_options(user, parameters)
    return symbols.evaluated(with_file_launch(given, properties, executed=executed)), {}


def with_file_launch(
    kernel: UserKernel, properties: DeviceProperties, *, executed: bool = True
) -> UserKernel:
    """Give a kernel named by its file the options that it lacks, from its launch in the file.

    Args:
        kernel: The kernel.
        properties: The device to compile for.
        executed: Whether it will run. If not, what the file does not tell may be missing.

    Raises:
        UsageError: The file launches several kernels, or does not tell the launch completely.
    """
    from memlab.device.debug_info import file_launches

    if not file_launches.needs_launch(kernel, executed=executed):
        return kernel
    try:
        found = launch_in_file(kernel, properties)
    except UsageError:
        if executed:
            raise
        return kernel
    return found.proposal.kernel if found and found.proposal else kernel


def launch_in_file(kernel: UserKernel, properties: DeviceProperties) -> FileLaunch | None:
    """Find the launch of a kernel in its file, with sizes of arrays that the kernel itself tells.

    Arrays whose sizes the host code does not tell are as large as the kernel reaches into them.

    Args:
        kernel: The kernel.
        properties: The device to compile for.

    Returns:
        The launch; None where the file does not launch the kernel.

    Raises:
        UsageError: The file launches several kernels, or does not tell the launch completely.
    """
    from memlab.device.debug_info import file_launches

    found = file_launches.complete_launch(kernel, properties, without_sizes=True)
    if found is None or found.proposal is None or not found.symbols:
        return found
    sizes = _reached_sizes(found.proposal, found.symbols, properties)
    if not sizes:  # the message says what to give
        return file_launches.complete_launch(kernel, properties)
    given = tuple(f"{name}={size}" for name, size in sizes.items())
    named = found.proposal.kernel
    proposal = replace(
        found.proposal, kernel=replace(named, symbols=(*named.symbols, *given)), symbols=()
    )
    return replace(found, proposal=proposal, symbols=())


def _reached_sizes(
    proposal: ProposedLaunch, names: Sequence[str], properties: DeviceProperties
) -> dict[str, int]:
    """The elements that a kernel reaches into arrays, by the symbols of their sizes.

    Returns:
        The sizes; empty where they cannot be found.
    """
    from memlab.device.emulation.array_reach import array_reach
    from memlab.device.emulator.machine.memory import KernelFault
    from memlab.device.emulator.ptx.parser import PtxError
    from memlab.kernels.user import symbols

    sizes = dict.fromkeys(names, 1)
    for _ in range(_MAX_TRIALS):  # what the arrays hold may decide how far others are used
        given = tuple(f"{name}={size}" for name, size in sizes.items())
        kernel = replace(proposal.kernel, symbols=(*proposal.kernel.symbols, *given))
        kernel = replace(symbols.evaluated(kernel), reference="", expect=())
        try:
            with warnings.catch_warnings(action="ignore"):
                launch = prepare_launch(kernel, {}, properties)
            compiled = compile_launch(launch, properties.compute_capability)
            ends = array_reach(launch, compiled, Budget(EMULATION_TIMEOUT_S))
        except (UsageError, DeviceError, PtxError, KernelFault, EmulationTimeoutError):
            return {}
        found = {
            name: max(size, -(-ends.get(proposal.sizes[name][0], 0) // proposal.sizes[name][1]))
            for name, size in sizes.items()
        }
        if found == sizes:
            return sizes if any(size > 1 for size in sizes.values()) else {}
        sizes = found
    return {}


def prepare_launch(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    properties: DeviceProperties,
    *,
    executed: bool = True,
) -> Launch:
    """Make a launch of a catalog kernel or of a user kernel for a device.

    Args:
        kernel: The catalog kernel's name, or the user kernel.
        parameters: The parameters of a catalog kernel; a missing one, or None, takes its default.
        properties: The device.
        executed: Whether the launch will run. If not, a user kernel's arguments may be missing.

    Raises:
        UsageError: An unknown kernel, or a parameter out of range.
        DeviceError: The compiler is not available, or does not know the device.
    """
    if isinstance(kernel, str):
        return catalog.find_kernel(kernel).prepare(parameters, launch_limits(properties))
    from memlab.device.debug_info.compiled_kernels import compilation_unit, compiled_source
    from memlab.device.debug_info.kernel_lookup import signature_of
    from memlab.device.debug_info.ptx_signatures import with_parameters
    from memlab.device.references import output_references
    from memlab.kernels.kernel import check_has_clusters
    from memlab.kernels.python.front_ends import adapted_kernel
    from memlab.kernels.user.launch import make_user_launch, unfilled_constants

    kernel = adapted_kernel(kernel, properties.compute_capability)
    if kernel.cluster:  # the compiler would refuse what clusters need, in many lines
        check_has_clusters(kernel.cluster, launch_limits(properties))
    compiled = compiled_source(kernel, properties.compute_capability)
    unit = compilation_unit(kernel, properties.compute_capability, compiled)
    signature = signature_of(unit, compiled.entry if compiled else kernel.entry)
    if compiled and compiled.parameters is not None:
        signature = with_parameters(signature, compiled.parameters, unit.source_name)
    launch = make_user_launch(
        kernel,
        signature,
        unit.source,
        launch_limits(properties),
        executed=executed,
        compiled=compiled,
    )
    if not executed:
        return launch
    if unfilled := unfilled_constants(kernel, signature, unit.source):
        _warn_of_zeros(unfilled)
    return replace(launch, references=output_references(kernel, launch))


def _warn_of_zeros(variables: Sequence[ModuleVariable]) -> None:
    """Warn that `__constant__` variables hold zeros, since no option gives them values."""
    names = ", ".join(variable.name for variable in variables)
    from memlab.kernels.user.arguments.tensor_maps import constant_example

    fills = [
        f"'{each.name}={constant_example(each)}'" if each.is_tensor_map else f"{each.name}=random"
        for each in variables
        if each.dtype or (each.structure is not None and not each.structure.has_pointers)
    ]
    cure = f"use --const {fills[0]}" if fills else "memlab fills only numbers"
    warnings.warn(
        f"no values are given for the __constant__ {plural(len(variables), 'variable')} {names}, "
        f"so {'it holds' if len(variables) == 1 else 'they hold'} zeros: {cure}",
        MemlabWarning,
        stacklevel=6,  # the caller of `memlab.run`
    )


def kernel_signatures(kernel: UserKernel, device: str | int | None = None) -> tuple[Signature, ...]:
    """Read the parameters of user kernels.

    Args:
        kernel: The kernel, or a file without an entry for all kernels in it.
        device: The device to compile for, as for `memlab.run`.

    Raises:
        UsageError: There is no such file, device or kernel, or the source does not compile.
        DeviceError: The compiler is not available.
    """
    from memlab.device.debug_info.compiled_kernels import compilation_unit, compiled_source
    from memlab.device.debug_info.kernel_lookup import signature_of, signatures

    properties = open_device(device).properties
    compiled = compiled_source(kernel, properties.compute_capability)
    unit = compilation_unit(kernel, properties.compute_capability, compiled)
    if not kernel.entry and (all_signatures := signatures(unit)):
        return all_signatures
    return (signature_of(unit, kernel.entry),)


def emulation_budget(timeout_s: float | None, memory_bytes: int | None) -> Budget:
    """Make the limits of emulating a launch.

    Args:
        timeout_s: Time, seconds; None allows `EMULATION_TIMEOUT_S`.
        memory_bytes: Memory, bytes; None allows the memory that is free.

    Raises:
        UsageError: One of them is not a number, or not more than 0.
    """
    memory_bytes = _check_integer("memory_bytes", memory_bytes, "memory_bytes=4 * 2**30 for 4 GiB")
    return Budget(_check_seconds(timeout_s, EMULATION_TIMEOUT_S), memory_bytes)


def timing_settings(samples: int | None, timeout_s: float | None) -> TimingSettings:
    """Make the settings with which a GPU times launches.

    Args:
        samples: Launches that are timed; None takes 30 or more, until the median is known.
        timeout_s: The longest time of one launch, seconds; None allows `TIMEOUT_S`.

    Raises:
        UsageError: One of them is not a number, or not more than 0.
    """
    return TimingSettings(
        _check_integer("samples", samples, "samples=30"),
        timeout_s=_check_seconds(timeout_s, TIMEOUT_S),
    )


def parse_index(name: str, value: int | Sequence[int] | str) -> Dim3:
    """Read an index in a grid or a block.

    Args:
        name: The parameter's name, for messages.
        value: One to three whole numbers, x first: `1`, `(1, 0)` or `"1,0"`. Missing ones are 0.

    Raises:
        UsageError: It is not an index. Whether it lies in the launch is not checked.
    """
    from memlab.kernels.user.launch_options import format_value, parse_integers

    numbers = parse_integers(value)
    if not 1 <= len(numbers) <= 3:
        raise UsageError(
            f"{name} takes one to three whole numbers, in x, y and z, got {format_value(value)}: "
            f"use {name}=(0, 1, 0)"
        )
    x, y, z = (*numbers, 0, 0)[:3]
    return x, y, z


def _check_integer(name: str, value: int | None, example: str) -> int | None:
    try:
        return None if value is None else operator.index(value)
    except TypeError:
        raise UsageError(f"{name} must be a whole number, got {value!r}: use {example}") from None


def _check_seconds(timeout_s: float | None, default_s: float) -> float:
    if timeout_s is None:
        return default_s
    if not isinstance(timeout_s, Real):
        raise UsageError(
            f"timeout_s must be a number of seconds, got {timeout_s!r}: use timeout_s=60"
        )
    return float(timeout_s)


def current_time() -> datetime:
    """Return the time, or that of SOURCE_DATE_EPOCH, with which documents can be reproduced.

    Raises:
        UsageError: SOURCE_DATE_EPOCH is not a number of seconds.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return datetime.now(UTC)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH must be seconds since 1970, got {epoch!r}: correct or unset it"
        ) from error
