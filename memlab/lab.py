"""The main jobs as functions: query a device, run a kernel, place runs under a roof.

The command line and `import memlab` both call these; here the rooms meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.device import datasheet
from memlab.device.devices import Device, limits, open_device
from memlab.kernels import catalog
from memlab.roofline.advice import advise
from memlab.roofline.ceilings import ceilings
from memlab.roofline.placement import place
from memlab.roofline.run import Ceiling, Run
from memlab.roofline.store import Store

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from memlab.device.emulated import Progress
    from memlab.device.properties import DeviceProperties

LADDER: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("naive", {"width": 2048}),
    ("tiled", {"width": 2048, "tile": 8}),
    ("tiled", {"width": 2048, "tile": 16}),
    ("tiled", {"width": 2048, "tile": 32}),
)
"""What a roofline shows where nothing was recorded: the textbook's steps."""


@dataclass(frozen=True)
class Roofline:
    """Runs of one device under its roofs.

    Attributes:
        properties: The device.
        ceilings: Its roofs.
        runs: The runs, oldest first.
    """

    properties: DeviceProperties
    ceilings: tuple[Ceiling, ...]
    runs: tuple[Run, ...]

    def figure(self) -> Figure:
        """Draw it: see `memlab.roofline.plot.draw`."""
        from memlab.roofline.plot import draw

        newest = max(run.created_at for run in self.runs)[:10]
        return draw(self.runs, self.ceilings, self.properties.name, newest)

    def csv(self) -> str:
        """The ceilings and points as CSV, enough to draw the picture again."""
        from memlab.roofline.table import picture_csv

        return picture_csv(self.runs, self.ceilings)

    def frame(self) -> pandas.DataFrame:
        """The runs as a pandas frame, a row each."""
        from memlab.roofline.table import frame

        return frame(self.runs)


def device_names() -> list[str]:
    """The names that `device` takes here."""
    return list(datasheet.names())


def device_properties(device: str | None = None) -> DeviceProperties:
    """What a device has.

    Args:
        device: A datasheet's name; None takes the default device.

    Raises:
        UsageError: There is no such device.
        DeviceError: A GPU was asked for that is not available.
    """
    return open_device(device).properties


def run(
    kernel: str,
    parameters: Mapping[str, int | None],
    *,
    device: str | None = None,
    seed: int = 0,
    store: Path | None = None,
    keep: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Compile, execute, verify, count, time and place one kernel.

    Args:
        kernel: A name of the catalog.
        parameters: Its parameters; what is missing or None takes its default.
        device: See `device_properties`.
        seed: Of the random inputs.
        store: The file to keep the run in; None takes the user's.
        keep: Whether to keep it at all.
        progress: Told what is being done and the fraction that is over.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, a store that cannot
            be written.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel itself failed.
    """
    runs = Store(store) if keep else None
    if runs is not None:
        runs.check()
    made = _run(open_device(device), kernel, parameters, seed, progress)
    return made if runs is None else runs.add(made)


def roofline(
    *, device: str | None = None, store: Path | None = None, progress: Progress | None = None
) -> Roofline:
    """Gather the recorded runs of a device; where there are none, run the ladder first.

    Args:
        device: See `device_properties`.
        store: The file that keeps runs; None takes the user's.
        progress: As for `run`.

    Raises:
        UsageError: An unknown device, or a store that cannot be used.
        DeviceError: The device or the compiler is not available.
    """
    opened, kept = open_device(device), Store(store)
    runs = kept.runs(device=opened.key)
    if not runs:
        kept.check()
        runs = [
            kept.add(_run(opened, kernel, parameters, 0, progress)) for kernel, parameters in LADDER
        ]
    return Roofline(opened.properties, ceilings(opened.properties), tuple(runs))


def _run(
    device: Device,
    name: str,
    parameters: Mapping[str, int | None],
    seed: int,
    progress: Progress | None,
) -> Run:
    launch = catalog.find(name).prepare(parameters, limits(device.properties))
    measurement = device.run(launch, seed, progress)
    roofs = ceilings(device.properties)
    placement = place(measurement, roofs)
    return Run(
        id=None,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        memlab_version=version("memlab"),
        measurement=measurement,
        placement=placement,
        advice=advise(measurement, placement, device.properties, roofs),
    )
