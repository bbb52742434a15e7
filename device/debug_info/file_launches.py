"""The launches that the host code of a user's file makes, as launch options."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.cubin import kernel_resources
from memlab.device.compiler.headers import own_header_texts
from memlab.device.debug_info.compiled_kernels import compilation_unit
from memlab.device.debug_info.kernel_lookup import signature_of
from memlab.device.debug_info.parameter_uses import ParameterUses, parameter_uses
from memlab.device.occupancy import BlockRequirements, compute_occupancy
from memlab.errors import MemlabError, UsageError
from memlab.kernels.host_code.calls import UNKNOWN_MARK, UNKNOWN_TYPE
from memlab.kernels.host_code.reading import Reading, read_host_code
from memlab.kernels.user.expressions import split_list
from memlab.kernels.user.kernel import (
    compile_options,
    is_compiled,
    is_object,
    parse_defines,
    read_source,
)
from memlab.kernels.user.proposals import (
    ProposedLaunch,
    launch_entry,
    propose_launch,
    template_symbols,
)
from memlab.kernels.user.symbols import evaluated, symbol_values, with_template_values

if TYPE_CHECKING:
    from memlab.device.compiler.translation_unit import Architecture
    from memlab.device.measurement import Resources
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.host_code.machine import RecordedLaunch
    from memlab.kernels.signature import Signature
    from memlab.kernels.user.kernel import UserKernel

_MAX_LISTED = 8
_MAX_EXPLORED = 4
"""The most instantiations of a template that are listed though the program makes none of them."""
_CUDA_PROPERTIES = {
    "asyncEngineCount": "async_engine_count",
    "cooperativeLaunch": "cooperative_launch",
    "integrated": "integrated",
    "l2CacheSize": "l2_cache_bytes",
    "maxBlocksPerMultiProcessor": "max_blocks_per_multiprocessor",
    "maxGridSize": "max_grid_dim",
    "maxThreadsDim": "max_block_dim",
    "maxThreadsPerBlock": "max_threads_per_block",
    "maxThreadsPerMultiProcessor": "max_threads_per_multiprocessor",
    "memPitch": "max_pitch_bytes",
    "memoryBusWidth": "global_memory_bus_width_bits",
    "multiProcessorCount": "multiprocessor_count",
    "regsPerBlock": "max_registers_per_block",
    "regsPerMultiprocessor": "max_registers_per_multiprocessor",
    "reservedSharedMemPerBlock": "reserved_shared_memory_per_block_bytes",
    "sharedMemPerBlock": "max_shared_memory_per_block_bytes",
    "sharedMemPerBlockOptin": "max_shared_memory_per_block_optin_bytes",
    "sharedMemPerMultiprocessor": "max_shared_memory_per_multiprocessor_bytes",
    "totalConstMem": "total_constant_memory_bytes",
    "totalGlobalMem": "total_memory_bytes",
    "warpSize": "warp_size",
}
"""The fields of `DeviceProperties` by the members of CUDA's `cudaDeviceProp`."""


class SeveralLaunches(UsageError):
    """A file launches several kernels, and none is named."""

    def __init__(self, source: str, entries: tuple[str, ...]) -> None:
        """Name the kernels.

        Args:
            source: The file.
            entries: The kernels, with the arguments of their templates.
        """
        self.targets = tuple(f"{source}:{entry}" for entry in entries)
        names = ", ".join(map(repr, entries[:_MAX_LISTED]))
        more = f" and {len(entries) - _MAX_LISTED} more" if len(entries) > _MAX_LISTED else ""
        first = shlex.quote(self.targets[0])
        super().__init__(
            f"{source} launches {len(entries)} kernels, {names}{more}: name one, as in {first}, "
            f"or run all with 'memlab run {shlex.quote(source)} --all'"
        )


@dataclass(frozen=True)
class FileLaunch:
    """A launched kernel of a file.

    Attributes:
        entry: The kernel's name, with the arguments of its template.
        proposal: Its launch; None where the kernel cannot be had.
        reason: Why it cannot.
        symbols: The numbers to give, in the order in which they are used.
        line: The launch's line.
    """

    entry: str
    proposal: ProposedLaunch | None
    reason: str
    symbols: tuple[str, ...]
    line: int

    @property
    def is_complete(self) -> bool:
        """Whether it can run as the program makes it."""
        return self.proposal is not None and self.proposal.is_told


@dataclass(frozen=True)
class FileLaunches:
    """The launched kernels of a file.

    Attributes:
        launches: Each kernel's first launch that is told best.
        stop: How far memlab followed the program where it may launch more, as `Reading.stop`.
    """

    launches: tuple[FileLaunch, ...]
    stop: str


def needs_launch(kernel: UserKernel, *, executed: bool = True) -> bool:
    """Whether a kernel lacks what a launch in its file may tell.

    Args:
        kernel: The kernel; those of `memlab.toml` say themselves how they are launched.
        executed: Whether it will run. If not, its block is enough.
    """
    if kernel.name or is_compiled(kernel) or is_object(kernel):
        return False
    if not executed:
        return not kernel.block
    return not (kernel.args and kernel.grid and kernel.block)


def complete_launch(
    kernel: UserKernel, properties: DeviceProperties, *, without_sizes: bool = False
) -> FileLaunch | None:
    """Find the launch of a kernel in its file.

    Args:
        kernel: The kernel; its own options stay. Without an entry, the only kernel that the file
            launches.
        properties: The device to compile for, whose figures the host code may ask for.
        without_sizes: Whether sizes of arrays may be missing, as the only symbols.

    Returns:
        The launch; None where the file does not launch the kernel.

    Raises:
        UsageError: The file launches several kernels and none is named, or the launch cannot be
            told completely; the message says what to give.
    """
    found = _find_launch(kernel, properties)
    if found is None:
        return None
    target = f"{kernel.source}:{found.entry}"
    sizes = found.proposal.sizes if found.proposal and without_sizes else {}
    if missing := [name for name in found.symbols if name not in sizes]:
        given = " ".join(f"--set {name}=1M" for name in missing)
        raise UsageError(
            f"{target}: the launch in line {found.line} does not tell "
            f"{', '.join(missing)}: give {given}, with your numbers"
        )
    if found.proposal is not None and found.proposal.gaps and not kernel.args:
        number, reason = next(iter(found.proposal.gaps.items()))
        what = "the launch" if number < 0 else f"argument {number}"
        raise UsageError(
            f"{target}: {what} in line {found.line} {reason}: give one --arg for each argument, "
            f"or let 'memlab init {shlex.quote(kernel.source)}' write them into a file"
        )
    return found if found.proposal is not None else None


def _find_launch(kernel: UserKernel, properties: DeviceProperties) -> FileLaunch | None:
    """The launch of a kernel in its file, with the values of the kernel's symbols.

    Conditions, loops and templates may depend on what the symbols stand for. Where they decide
    nothing, the launch's options are expressions of the symbols.
    """
    architecture = properties.compute_capability
    symbolic = _select_launches(kernel, properties, {})
    values = symbol_values(kernel) if kernel.symbols else None
    decided = None if values is None else _select_launches(kernel, properties, values)
    if decided is None:
        return _file_launch(kernel, *symbolic, architecture) if symbolic else None
    found = _file_launch(kernel, *decided, architecture)
    if symbolic is None or (symbolic[0] != decided[0] and _is_told(found, kernel)):
        return found
    other = _file_launch(kernel, *symbolic, architecture)
    return found if _is_told(found, kernel) and not _is_alike(other, found) else other


def _select_launches(
    kernel: UserKernel, properties: DeviceProperties, known: Mapping[str, int | Fraction]
) -> tuple[str, Sequence[RecordedLaunch]] | None:
    """The launches of a kernel in its file, with values of numbers that the host code lacks.

    Raises:
        UsageError: None was met before memlab stopped following the program.
        SeveralLaunches: The file launches several kernels and none is named.
    """
    reading = _read_launches(kernel, properties, known)
    groups = _launches_by_entry(kernel, properties, known, reading)
    if reading.stop and kernel.entry and not groups:
        raise UsageError(
            f"{kernel.target}: memlab followed the host code only {reading.stop} and met no launch "
            "of it: give --grid, --block and one --arg for each argument, or let 'memlab init "
            f"{shlex.quote(kernel.source)}' write them into a file"
        )
    made = {
        entry: launches
        for entry, launches in groups.items()
        if not all(launch.is_explored for launch in launches)
    }
    if len(made) == 1:
        groups = made
    if len(groups) > 1 and not kernel.entry:
        raise SeveralLaunches(kernel.source, tuple(groups))
    return next(iter(groups.items()), None)


def _is_alike(launch: FileLaunch, other: FileLaunch) -> bool:
    """Whether two launches have the same options for the values of the kernel's symbols."""
    if launch.proposal is None or other.proposal is None or launch.symbols:
        return False
    try:
        return evaluated(launch.proposal.kernel) == evaluated(other.proposal.kernel)
    except UsageError:
        return False


def _is_told(found: FileLaunch, kernel: UserKernel) -> bool:
    """Whether a launch, with the kernel's own options, lacks nothing but sizes of arrays."""
    if found.proposal is None or not found.proposal.sizes.keys() >= set(found.symbols):
        return False
    return not found.proposal.gaps or bool(kernel.args)


def file_launches(kernel: UserKernel, properties: DeviceProperties) -> FileLaunches:
    """Find the kernels that a file launches, each with its first launch that is told best.

    Args:
        kernel: The file, with or without an entry, and the options of the compiler.
        properties: As for `complete_launch`.

    Raises:
        UsageError: There is no such file, or a definition is malformed.
    """
    reading = _read_launches(kernel, properties, {})
    groups = _few_explored(_launches_by_entry(kernel, properties, {}, reading))
    architecture = properties.compute_capability
    launches = (_file_launch(kernel, *group, architecture) for group in groups.items())
    return FileLaunches(tuple(launches), reading.stop)


def _few_explored(
    groups: Mapping[str, Sequence[RecordedLaunch]],
) -> dict[str, Sequence[RecordedLaunch]]:
    """The launches without those of all but a few instantiations that the program does not make.

    A function that chooses among many instantiations would otherwise have all of them compiled.
    """
    counts: Counter[str] = Counter()
    kept: dict[str, Sequence[RecordedLaunch]] = {}
    for entry, launches in groups.items():
        is_explored = all(launch.is_explored for launch in launches)
        counts[launches[0].kernel] += is_explored
        if not is_explored or counts[launches[0].kernel] <= _MAX_EXPLORED:
            kept[entry] = launches
    return kept


def command_line(proposal: ProposedLaunch) -> str:
    """The options of a launch as a command line gives them."""
    kernel = proposal.kernel
    words = [kernel.target]
    for name in ("grid", "block", "cluster"):
        if extents := getattr(kernel, name):
            words += [f"--{name}", ",".join(map(str, extents))]
    if kernel.shared:
        words += ["--shared", str(kernel.shared)]
    options: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("--set", kernel.symbols),
        ("--arg", kernel.args),
        ("--const", kernel.constants),
        ("-D", kernel.defines),
        ("-I", kernel.include),
    )
    for option, texts in options:
        for text in texts:
            words += [option, str(text)]
    return " ".join(map(shlex.quote, words))


def _file_launch(
    kernel: UserKernel,
    entry: str,
    launches: Sequence[RecordedLaunch],
    architecture: Architecture,
) -> FileLaunch:
    line = launches[0].line
    given = {text.partition("=")[0].strip() for text in kernel.symbols}
    missing = tuple(name for name in template_symbols(launches[0]) if name not in given)
    if missing:
        return FileLaunch(entry, None, "", missing, line)
    named = replace(kernel, entry=entry)
    try:
        signature = _signature(named, architecture)
    except MemlabError as error:
        return FileLaunch(entry, None, str(error).partition("\n")[0], (), line)
    uses = _parameter_uses(named, signature, architecture)
    stored, loaded = (None, None) if uses is None else (uses.stored, uses.loaded)
    proposals = [propose_launch(named, launch, signature, stored, loaded) for launch in launches]
    ranked = sorted(
        zip(proposals, launches, strict=True),
        key=lambda pair: (len(pair[0].gaps), len(pair[0].symbols), pair[1].is_explored),
    )
    best = ranked[0][0]
    return FileLaunch(entry, best, "", best.symbols, best.line)


def _signature(kernel: UserKernel, architecture: Architecture) -> Signature:
    unit = compilation_unit(kernel, architecture, None)
    return signature_of(unit, with_template_values(kernel).entry)


def _parameter_uses(
    kernel: UserKernel, signature: Signature, architecture: Architecture
) -> ParameterUses | None:
    """What the kernel, compiled as it will run, does with its parameters; None if unknown."""
    unit = compilation_unit(with_template_values(kernel), architecture, None)
    unit = replace(unit, name_expression=signature.name_expression)
    try:
        return parameter_uses(compile_unit(unit).ptx, signature.linkage_name)
    except MemlabError:
        return None  # the run says what is wrong


def _launches_by_entry(
    kernel: UserKernel,
    properties: DeviceProperties,
    known: Mapping[str, int | Fraction],
    reading: Reading,
) -> dict[str, list[RecordedLaunch]]:
    """The launches of the kernel, or of all kernels of the file, by their entries."""
    groups: dict[str, list[RecordedLaunch]] = {}
    for launch in reading.launches:
        if launch.is_undeduced:
            continue
        entry = launch_entry(launch)
        if _matches(kernel.entry, entry):
            groups.setdefault(entry, []).append(launch)
    if "<" in kernel.entry and not groups:
        return _launches_with_arguments(kernel, properties, known, reading.launches)
    if kernel.entry and len(groups) > 1:  # several instantiations: the first that is made
        first = next(
            (entry for entry, group in groups.items() if not group[0].is_explored),
            next(iter(groups)),
        )
        exact = next((entry for entry in groups if _plain(entry) == _plain(kernel.entry)), first)
        return {exact: groups[exact]}
    return groups


def _launches_with_arguments(
    kernel: UserKernel,
    properties: DeviceProperties,
    known: Mapping[str, int | Fraction],
    launches: Sequence[RecordedLaunch],
) -> dict[str, list[RecordedLaunch]]:
    """The launches of a template whose arguments are only those of the entry."""
    found = [(launch, _given_arguments(launch, kernel.entry)) for launch in launches]
    fitting = [(launch, given) for launch, given in found if given is not None]
    numbers = {
        own.removeprefix(UNKNOWN_MARK): int(text)
        for _, given in fitting[:1]
        for own, text in given.items()
        if own.startswith(UNKNOWN_MARK) and text.strip().isdecimal()
    }
    if not numbers.keys() <= known.keys():  # what they decide, such as the block
        known = {**numbers, **known}
        return _launches_by_entry(
            kernel, properties, known, _read_launches(kernel, properties, known)
        )
    listed = [replace(launch, template_arguments=None) for launch, _ in fitting]
    return {kernel.entry: listed} if listed else {}


def _matches(wanted: str, entry: str) -> bool:
    """Whether an entry is the wanted one: exactly, or without its namespaces or template."""
    if not wanted or _plain(wanted) == _plain(entry):
        return True
    name, bracket, arguments = wanted.partition("<")
    other, _, others = entry.partition("<")
    if bracket and _plain(arguments) != _plain(others):
        return False
    return name.rpartition("::")[2].strip() == other.rpartition("::")[2].strip()


def _given_arguments(launch: RecordedLaunch, entry: str) -> dict[str, str] | None:
    """The template arguments that an entry gives for those that a launch does not tell.

    Returns:
        By what the launch writes for each; None where the kernel is another, or what it tells.
    """
    name, _, rest = entry.partition("<")
    if not _matches(name, launch.kernel):
        return None
    listed = split_list(rest.rpartition(">")[0])
    given = dict(zip(launch.template_arguments or (), listed, strict=False))
    if any(
        UNKNOWN_MARK not in own and UNKNOWN_TYPE not in own and _plain(own) != _plain(other)
        for own, other in given.items()
    ):
        return None
    return given


def _plain(text: str) -> str:
    return re.sub(r"\s", "", text)


def _read_launches(
    kernel: UserKernel, properties: DeviceProperties, known: Mapping[str, int | Fraction]
) -> Reading:
    source = read_source(kernel)
    headers = own_header_texts(source, kernel.source, compile_options(kernel))
    if not any("<<<" in text or "cudaLaunch" in text for text in (source, *headers.values())):
        return Reading(())
    defines, device = parse_defines(kernel), _cuda_properties(properties)
    blocks_per_sm = _BlocksPerSm(kernel, properties)
    return read_host_code(source, kernel.source, headers, defines, known, device, blocks_per_sm)


@dataclass
class _BlocksPerSm:
    """The blocks that an SM holds of the kernels of a file, which are compiled when asked for."""

    kernel: UserKernel
    properties: DeviceProperties
    resources: dict[str, Resources | None] = field(default_factory=dict)

    def __call__(self, entry: str, threads: int, shared: int) -> int | None:
        """As `Machine.blocks_per_sm`."""
        if entry not in self.resources:
            self.resources[entry] = self._compiled(entry)
        found = self.resources[entry]
        if found is None or found.registers_per_thread is None:
            return None
        needed = BlockRequirements(
            threads, found.registers_per_thread, found.static_shared_bytes + shared
        )
        try:
            return compute_occupancy(self.properties, needed).blocks_per_sm
        except UsageError:
            return 0
        except MemlabError:
            return None

    def _compiled(self, entry: str) -> Resources | None:
        named = replace(self.kernel, entry=entry)
        unit = compilation_unit(named, self.properties.compute_capability, None)
        try:
            output = compile_unit(replace(unit, name_expression=entry))
            return kernel_resources(output.cubin, output.lowered_name)
        except MemlabError:
            return None  # the run says what is wrong


def _cuda_properties(properties: DeviceProperties) -> dict[str, int | tuple[int, ...]]:
    """The known members of a device's `cudaDeviceProp` (CUDA Runtime API), in its units."""
    major, minor = properties.compute_capability
    known: dict[str, int | tuple[int, ...] | None] = {
        "major": major,
        "minor": minor,
        **{name: getattr(properties, figure) for name, figure in _CUDA_PROPERTIES.items()},
    }
    for name, hertz in (
        ("clockRate", properties.clock_rate_hz),
        ("memoryClockRate", properties.memory_clock_rate_hz),
    ):
        known[name] = None if hertz is None else hertz // 1000
    return {
        name: int(value) if isinstance(value, bool) else value
        for name, value in known.items()
        if value is not None
    }
