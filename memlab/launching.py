"""A launch made ready for a device, and how it is to be run: what all the jobs begin with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memlab.device.budget import EMULATION_TIMEOUT_S, Budget
from memlab.device.devices import limits
from memlab.device.references import references
from memlab.device.signature import signature_of
from memlab.device.timing import TIMEOUT_S, Settings
from memlab.device.unit import Unit
from memlab.errors import UsageError
from memlab.kernels import catalog, own, own_launch

if TYPE_CHECKING:
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.launch import Launch
    from memlab.kernels.own import OwnKernel


def prepared(
    kernel: str | OwnKernel,
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
        return catalog.find(kernel).prepare(parameters, limits(properties))
    unit = unit_of(kernel, properties)
    signature = signature_of(unit, kernel.entry)
    launch = own_launch.launch(
        kernel, signature, unit.source, limits(properties), executed=executed
    )
    return replace(launch, references=references(kernel, launch)) if executed else launch


def unit_of(kernel: OwnKernel, properties: DeviceProperties) -> Unit:
    """Make what a device's compiler takes of the file of one's own kernel.

    Raises:
        UsageError: There is no such file or folder, or a definition is malformed.
    """
    return Unit(
        own.read_source(kernel),
        kernel.source,
        properties.compute_capability,
        own.defines(kernel),
        own.compile_options(kernel),
    )


def budget_of(timeout_s: float | None, memory_bytes: int | None) -> Budget:
    """What emulating may take; None allows the usual."""
    return Budget(EMULATION_TIMEOUT_S if timeout_s is None else timeout_s, memory_bytes)


def settings_of(samples: int | None, timeout_s: float | None) -> Settings:
    """How a GPU times launches; None allows the usual."""
    return Settings(samples, timeout_s=TIMEOUT_S if timeout_s is None else timeout_s)


def now() -> datetime:
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
