"""A launch made ready for a device, and how it is to be run: what all the jobs begin with."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from numbers import Real
from typing import TYPE_CHECKING

from memlab.device.budget import EMULATION_TIMEOUT_S, Budget
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.kernel_lookup import signature_of
from memlab.device.devices import launch_limits
from memlab.device.gpu.timing import TIMEOUT_S, TimingSettings
from memlab.device.references import output_references
from memlab.errors import UsageError
from memlab.kernels import catalog
from memlab.kernels.user import kernel as user_kernel
from memlab.kernels.user import launch as user_launch
from memlab.kernels.user.launch_options import format_value, parse_integers

if TYPE_CHECKING:
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.launch import Dim3, Launch
    from memlab.kernels.user.kernel import UserKernel


def prepare_launch(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    properties: DeviceProperties,
    *,
    executed: bool = True,
) -> Launch:
    """Make a launch for a device, of a kernel of the catalog or of one's own.

    Args:
        kernel: A name of the catalog, or one's own.
        parameters: Its parameters, if it is of the catalog; what is missing or None takes its
            default.
        properties: The device.
        executed: Whether it will run; of one's own kernel, arguments may else be missing.

    Raises:
        UsageError: An unknown kernel, or a parameter out of range.
        DeviceError: The compiler is not available, or does not know the device.
    """
    if isinstance(kernel, str):
        return catalog.find_kernel(kernel).prepare(parameters, launch_limits(properties))
    unit = compilation_unit(kernel, properties)
    signature = signature_of(unit, kernel.entry)
    launch = user_launch.make_user_launch(
        kernel, signature, unit.source, launch_limits(properties), executed=executed
    )
    return replace(launch, references=output_references(kernel, launch)) if executed else launch


def compilation_unit(kernel: UserKernel, properties: DeviceProperties) -> TranslationUnit:
    """Make what a device's compiler takes of the file of one's own kernel.

    Raises:
        UsageError: There is no such file or folder, or a definition is malformed.
    """
    return TranslationUnit(
        user_kernel.read_source(kernel),
        kernel.source,
        properties.compute_capability,
        user_kernel.parse_defines(kernel),
        user_kernel.compile_options(kernel),
    )


def emulation_budget(timeout_s: float | None, memory_bytes: int | None) -> Budget:
    """What emulating may take; None allows the usual.

    Raises:
        UsageError: One is no number, or not more than 0.
    """
    memory_bytes = _check_integer("memory_bytes", memory_bytes, "memory_bytes=4 * 2**30 for 4 GiB")
    return Budget(_check_seconds(timeout_s, EMULATION_TIMEOUT_S), memory_bytes)


def timing_settings(samples: int | None, timeout_s: float | None) -> TimingSettings:
    """How a GPU times launches; None allows the usual.

    Raises:
        UsageError: One is no number, or not more than 0.
    """
    return TimingSettings(
        _check_integer("samples", samples, "samples=30"),
        timeout_s=_check_seconds(timeout_s, TIMEOUT_S),
    )


def parse_index(what: str, value: int | Sequence[int] | str) -> Dim3:
    """Read an index in a grid or a block: a number or up to three; what is left out is 0.

    Args:
        what: Its name, for messages.
        value: `1`, `(1, 0)` or `"1,0"`; that it is inside is left to whoever knows the extent.

    Raises:
        UsageError: It is no such thing.
    """
    found = parse_integers(value)
    if not 1 <= len(found) <= 3:
        raise UsageError(
            f"{what} takes one to three whole numbers, in x, y and z, got {format_value(value)}: "
            f"use {what}=(0, 1, 0)"
        )
    x, y, z = (*found, 0, 0)[:3]
    return x, y, z


def _check_integer(what: str, value: int | None, example: str) -> int | None:
    try:
        return None if value is None else operator.index(value)
    except TypeError:
        raise UsageError(f"{what} must be a whole number, got {value!r}: use {example}") from None


def _check_seconds(timeout_s: float | None, usual_s: float) -> float:
    if timeout_s is None:
        return usual_s
    if not isinstance(timeout_s, Real):
        raise UsageError(
            f"timeout_s must be a number of seconds, got {timeout_s!r}: use timeout_s=60"
        )
    return float(timeout_s)


def current_time() -> datetime:
    """Tell the time, or what SOURCE_DATE_EPOCH says it is: documents can be made again alike."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return datetime.now(UTC)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH must be seconds since 1970, got {epoch!r}: correct or unset it"
        ) from error
