"""Results that belong to the API itself; the others are records of `device` and `roofline`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.device.measurement import Occupancy
from memlab.errors import suggest_nearest
from memlab.presentation import Presentable

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from memlab.device.doctor.diagnosis import DiagnosisItem
    from memlab.device.doctor.probes import MachineState
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.kernel import Kernel
    from memlab.kernels.user.kernel import UserKernel
    from memlab.roofline.comparison.records import Comparison
    from memlab.roofline.documents.occupancy import OccupancySubject
    from memlab.roofline.glossary import GlossaryEntry
    from memlab.roofline.run import Ceiling, Run


@dataclass(frozen=True, repr=False)
class ReportPage(Presentable):
    """Runs as one HTML page, which needs no other file. A notebook shows it.

    Attributes:
        html: The page.
        title: Its title.
        runs: The runs that it shows.
        left_out: Older runs of the store that it does not show.
    """

    html: str
    title: str
    runs: tuple[Run, ...]
    left_out: int = 0

    def save(self, path: Path | str) -> None:
        """Write the page to a file, in UTF-8.

        Raises:
            OSError: The file cannot be written.
        """
        Path(path).write_text(self.html, encoding="utf-8")


@dataclass(frozen=True, repr=False)
class Roofline(Presentable):
    """Runs of one device under its ceilings. A notebook shows the picture.

    Attributes:
        properties: The device.
        ceilings: The device's ceilings, from its datasheet.
        runs: The runs, oldest first.
        measured: The same ceilings as `memlab.peaks` measured them on this device; empty where it
            did not.
        fresh: The run that the command line made for this picture; None where it made none.
        title: The picture's title; the device's name where it is empty.
        all_runs: Whether the picture has all runs, since they were named one by one; else, of runs
            with equal kernel, parameters, label or sweep, and provenance, it has the newest.
    """

    properties: DeviceProperties
    ceilings: tuple[Ceiling, ...]
    runs: tuple[Run, ...]
    measured: tuple[Ceiling, ...] = ()
    fresh: Run | None = None
    title: str = ""
    all_runs: bool = False

    def figure(self) -> Figure:
        """Draw the picture as a matplotlib figure, which `savefig` writes to a file."""
        from memlab.roofline.plots.roofline import draw_roofline

        newest = max(run.created_at for run in self.runs)[:10]
        return draw_roofline(
            self.runs,
            self.ceilings,
            self.properties.name,
            newest,
            self.measured,
            title=self.title,
            all_runs=self.all_runs,
        )

    def csv(self) -> str:
        """Write the ceilings and the points as CSV, in base units: the data of the picture."""
        from memlab.roofline.documents.frames import picture_csv

        return picture_csv(self.runs, (*self.ceilings, *self.measured))

    def frame(self) -> pandas.DataFrame:
        """Make a pandas frame with a row for each run; see `memlab.frame`."""
        from memlab.roofline.documents.frames import runs_frame

        return runs_frame(self.runs)

    def _repr_png_(self) -> bytes:
        """Show the picture in a notebook; IPython looks for this name."""
        from memlab.roofline.plots.figure import render_figure

        return render_figure(self.figure(), "png")

    def _repr_html_(self) -> None:
        """Leave the notebook to the picture."""


@dataclass(frozen=True, repr=False)
class KernelOccupancy(Presentable, Occupancy):
    """The occupancy of a compiled kernel.

    Attributes:
        properties: The device.
        subject: The kernel, and the threads, registers and shared memory of its block.
    """

    properties: DeviceProperties
    subject: OccupancySubject


@dataclass(frozen=True, repr=False)
class Explanation(Presentable):
    """The meaning of a term, a counter or a kernel.

    Attributes:
        name: The name that was asked for; None for a list of all names.
        entries: The entries that the name stands for: two where a kernel and a term share it.
    """

    name: str | None
    entries: tuple[GlossaryEntry, ...]


@dataclass(frozen=True, repr=False)
class KernelList(Presentable, Mapping[str, "Kernel | UserKernel"]):
    """The kernels that can be run by name: a mapping, whose keys are the names.

    Attributes:
        catalog: The kernels of the catalog.
        user: The user kernels in the current folder's `memlab.toml`, by name.
    """

    catalog: tuple[Kernel, ...]
    user: Mapping[str, UserKernel]

    @property
    def names(self) -> tuple[str, ...]:
        """All names, those of the catalog first."""
        return tuple(self)

    def __getitem__(self, name: str) -> Kernel | UserKernel:
        """The kernel that a name stands for.

        Raises:
            KeyError: There is none; the message suggests the nearest name.
        """
        if name in self._by_name:
            return self._by_name[name]
        if not isinstance(name, str):
            raise KeyError(f"kernels are found by their names, got {name!r}: use list(kernels)")
        listing = "list(kernels) has all names"
        raise KeyError(f"unknown kernel {name!r}: {suggest_nearest(name, self, listing)}")

    def __iter__(self) -> Iterator[str]:
        """The names, those of the catalog first."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """The number of names."""
        return len(self._by_name)

    @property
    def _by_name(self) -> dict[str, Kernel | UserKernel]:
        return {**{kernel.name: kernel for kernel in self.catalog}, **self.user}


@dataclass(frozen=True, repr=False)
class DoctorReport(Presentable):
    """The parts of memlab that work on this machine.

    Attributes:
        items: One item for each part, with the remedy where it does not work.
        gpu_works: Whether kernels can run on a GPU.
        emulator_works: Whether kernels can run on emulated devices.
        machine: The facts on which the items rest.
    """

    items: tuple[DiagnosisItem, ...]
    gpu_works: bool
    emulator_works: bool
    machine: MachineState


@dataclass(frozen=True, repr=False)
class BaselineCheck(Presentable):
    """The launches of a baseline, run again.

    Attributes:
        comparison: A pair for each launch that ran, A as recorded and B as it is now; the launches
            that could not run; and the judged conditions.
        new_kernels: Kernels in the current folder's `memlab.toml` that the baseline lacks.
    """

    comparison: Comparison
    new_kernels: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether a condition holds or could not be judged, or an output is wrong."""
        return self.comparison.failed or self.comparison.wrong
