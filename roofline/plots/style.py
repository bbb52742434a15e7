"""The looks of pictures: colours, markers and labels of runs; modelled times are hollow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memlab.roofline.differing import differing_parameters
from memlab.roofline.placement import RooflinePoint, roofline_point
from memlab.roofline.run import Run
from memlab.roofline.units import parameters_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colour-blind safe colours ("Color Universal Design", 2008), without the yellow,
which is invisible on a projector."""

LINE_STYLES: tuple[Any, ...] = ("solid", (0, (3.5, 1.5)))
"""Matplotlib's line styles: kernels beyond the number of colours are dashed."""

INK = "#222222"
SECONDARY_INK = "#666666"
HAIRLINE = "#CCCCCC"
BACKGROUND = "#FFFFFF"
WARNING_COLOR = "#B03A00"

MARKERS = {"requested": "D", "l1": "^", "l2": "s", "dram": "o"}
"""Matplotlib's marker of every drawn level; `compulsory` is in the CSV file only."""

EXTENT_PARAMETERS = ("width", "height", "m", "k", "n")
"""Parameters that are the size of the problem; a label names the other parameters."""

DOTS_PER_INCH = 150
TEXT_POINTS = 11.0
SMALL_POINTS = 10.0
MATPLOTLIB_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT_POINTS,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SECONDARY_INK,
    "axes.linewidth": 0.8,
    "xtick.color": SECONDARY_INK,
    "ytick.color": SECONDARY_INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": TEXT_POINTS,
    "ytick.labelsize": TEXT_POINTS,
    "text.usetex": False,
    "text.parse_math": False,  # a dollar sign in a name starts no formula
    "axes.unicode_minus": False,
}
"""Matplotlib settings of all pictures, which override a user's matplotlibrc."""

CHART_SETTINGS = MATPLOTLIB_SETTINGS | {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": TEXT_POINTS,
    "axes.titleweight": "bold",
    "legend.frameon": False,
    "legend.borderpad": 0.0,
    "legend.borderaxespad": 0.0,
    "legend.handletextpad": 0.5,
    "legend.fontsize": SMALL_POINTS,
}
"""Matplotlib settings of pictures with axes and legends."""


@dataclass(frozen=True)
class RunStyle:
    """A run with its looks.

    Attributes:
        run: The run.
        color: The colour of its kernel at its size, a Matplotlib colour.
        line_style: Matplotlib's style of its lines; tells it from other runs of this colour.
        name: Its kernel, and its tile width where it has one.
        suffix: Its difference from other runs of the kernel, behind a dot; empty without one.
        identity: Its label, sweep or number, where that is such a difference; empty otherwise.
    """

    run: Run
    color: str
    line_style: Any
    name: str
    suffix: str
    identity: str

    @property
    def series(self) -> tuple[str, str]:
        """The kernel and the suffix: equal for runs that differ only in the tile width."""
        return self.run.measurement.kernel, self.suffix

    @property
    def label(self) -> str:
        """The label of its line."""
        return self.name + self.suffix

    @property
    def is_measured(self) -> bool:
        """Whether its time was measured, not modelled."""
        return self.run.measurement.time.provenance == "measured"

    @property
    def point(self) -> RooflinePoint:
        """Its point on the axes of the roofline."""
        return roofline_point(self.run.measurement, self.run.placement)

    @property
    def is_wrong(self) -> bool:
        """Whether its output is wrong."""
        return self.run.measurement.verification.status == "failed"

    @property
    def gflop_per_s(self) -> float:
        """Its performance in GFLOP/s."""
        return self.run.placement.flop_per_s / 1e9

    @property
    def line(self) -> dict[str, Any]:
        """Matplotlib's arguments for its lines, except for their width."""
        return {"color": self.color, "linestyle": self.line_style}

    @property
    def marker(self) -> dict[str, Any]:
        """Matplotlib's arguments for its markers."""
        return marker_style(self.color, self.is_measured)


def marker_style(color: str, measured: bool) -> dict[str, Any]:
    """Return Matplotlib's arguments for a marker: filled if the time was measured, else hollow.

    A white rim keeps filled markers of one colour apart, and a white gap surrounds all markers.
    """
    from matplotlib.patheffects import withStroke

    return {
        "markersize": 9.0 if measured else 7.5,
        "markerfacecolor": color if measured else BACKGROUND,
        "markeredgecolor": BACKGROUND if measured else color,
        "markeredgewidth": 1.0 if measured else 1.6,
        "linestyle": "none",
        "path_effects": [withStroke(linewidth=3.0, foreground=BACKGROUND)],
    }


def cross_style() -> dict[str, Any]:
    """Return Matplotlib's arguments for the cross over a marker whose run has a wrong output."""
    return {
        "marker": "x",
        "markersize": 15.0,
        "markeredgecolor": WARNING_COLOR,
        "markeredgewidth": 1.8,
        "linestyle": "none",
    }


def text_halo() -> list[object]:
    """Return Matplotlib's path effects of a text that is read over lines."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3, foreground=BACKGROUND)]


def run_styles(runs: Sequence[Run]) -> list[RunStyle]:
    """Choose the looks and labels of runs.

    A label has the size, other parameters and the user's label only where runs of its kernel differ
    in them, and the run's number where nothing else tells it from another.
    """
    identities = [_identity(run, runs) for run in runs]
    # Colours are few: runs with FLOPs, which alone are on the chart, choose first.
    ordered = sorted(
        zip(runs, identities, strict=True), key=lambda pair: not pair[0].placement.flop_per_s
    )
    variants = list(dict.fromkeys(_variant(*pair) for pair in ordered))
    styles = []
    for run, identity in zip(runs, identities, strict=True):
        kernel, tile = run.measurement.kernel, run.measurement.tile
        turn, place = divmod(variants.index(_variant(run, identity)), len(PALETTE))
        differing = differing_parameters(
            [each.measurement.parameters for each in runs if each.measurement.kernel == kernel]
        )
        size = _size_text(run) if differing & {*EXTENT_PARAMETERS} else ""
        parts = (size, _other_parameters_text(run, differing), identity)
        differences = ", ".join(filter(None, parts))
        suffix = f" · {differences}" if differences else ""
        styles.append(
            RunStyle(
                run,
                PALETTE[place],
                LINE_STYLES[turn % len(LINE_STYLES)],
                kernel if tile is None else f"{kernel} {tile}",
                suffix,
                identity,
            )
        )
    return styles


def drawn_apart(run: Run) -> object:
    """What tells a run from others in a picture; of runs in which it is equal one is enough."""
    return (*_launch(run), run.identity.name)


def _launch(run: Run) -> tuple[object, ...]:
    measurement = run.measurement
    parameters = tuple(measurement.parameters.items())
    return measurement.kernel, parameters, measurement.time.provenance


def _identity(run: Run, runs: Sequence[Run]) -> str:
    """A run's label, where others of its kernel have another, and its number beside its like.

    The name of its sweep tells it only from the same launch in another sweep.
    """
    same_kernel = [each for each in runs if each.measurement.kernel == run.measurement.kernel]
    same_launch = [each for each in same_kernel if _launch(each) == _launch(run)]
    labels = {each.identity.label for each in same_kernel}
    names = {each.identity.name for each in same_launch}
    name = run.identity.name if len(names) > 1 or (len(labels) > 1 and run.identity.label) else ""
    like = [each for each in same_kernel if drawn_apart(each) == drawn_apart(run)]
    number = f"run {run.id}" if len(like) > 1 and run.id is not None else ""
    return " ".join(filter(None, (name, number)))


def _size_text(run: Run) -> str:
    """The extents of the problem, as short as possible: `2048`, `100x57x75`."""
    parameters = run.measurement.parameters
    extents = [str(value) for name, value in parameters.items() if name in EXTENT_PARAMETERS]
    return extents[0] if len(set(extents)) == 1 else "x".join(extents)


def _other_parameters_text(run: Run, names: Collection[str]) -> str:
    """Those of the parameters that are neither an extent nor the tile width: `stride 2`."""
    names = set(names) - {*EXTENT_PARAMETERS, "tile"}
    parameters = run.measurement.parameters
    macros = str(parameters.get("defines", "")) if "defines" in names else ""
    others = {name: parameters[name] for name in parameters if name in names - {"defines"}}
    return ", ".join(filter(None, (parameters_text(others), macros)))


def _variant(run: Run, identity: str) -> tuple[str, str, str, str]:
    """A kernel at one size: runs with the same colour."""
    parameters = run.measurement.parameters
    others = _other_parameters_text(run, parameters)
    return run.measurement.kernel, _size_text(run), others, identity
