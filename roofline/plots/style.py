"""How the picture looks: one line a kernel and size, one marker a level, hollow if modelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memlab.roofline.run import Run
from memlab.roofline.units import parameters_text, without_lists

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memlab.device.measurement import Provenance

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colour-blind safe colours ("Color Universal Design", 2008), without the yellow
that a projector loses on white."""

LINE_STYLES: tuple[Any, ...] = ("solid", (0, (3.5, 1.5)))
"""Matplotlib's line styles: what comes after as many kernels as there are colours is dashed."""

INK = "#222222"
SECONDARY_INK = "#666666"
HAIRLINE = "#CCCCCC"
BACKGROUND = "#FFFFFF"
WARNING_COLOR = "#B03A00"

MARKERS = {"requested": "D", "l1": "^", "l2": "s", "dram": "o"}
"""Matplotlib's marker for each level that is drawn; `compulsory` is in the table of data only."""

LEVEL_NAMES = {"requested": "requested", "l1": "L1 / shared", "l2": "L2", "dram": "DRAM"}

EXTENT_PARAMETERS = ("width", "height", "m", "k", "n")
"""Parameters that say how large the work is; of others a label gives the name too."""

MARKER_RIM_POINTS = 0.7
"""Width of the gap around a marker."""

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
    "text.parse_math": False,  # names may hold dollar signs, and mean no formula
    "axes.unicode_minus": False,
}
"""Matplotlib settings that the picture sets itself, whatever a user's matplotlibrc says."""


@dataclass(frozen=True)
class RunStyle:
    """A run with its looks.

    Attributes:
        run: What is drawn.
        color: The colour of its kernel at its size.
        stroke: The style of its lines, which tells it from another of this colour.
        name: Its kernel, and its tile where it has one.
        rest: How it differs from other runs of the kernel, led by a dot; empty where it does not.
        series: What runs that differ only by tile have in common: kernel and rest.
    """

    run: Run
    color: str
    line_style: Any
    name: str
    rest: str
    series: tuple[str, str]

    @property
    def label(self) -> str:
        """What it is called beside the line."""
        return self.name + self.rest

    @property
    def line(self) -> dict[str, Any]:
        """Matplotlib's looks of its lines, but for their width."""
        return {"color": self.color, "linestyle": self.line_style}

    @property
    def marker(self) -> dict[str, Any]:
        """Matplotlib's looks of its markers."""
        return marker_style(self.color, self.run.measurement.time.provenance)

    @property
    def marker_gap(self) -> dict[str, Any]:
        """Looks of the gap around its markers, so that two that overlap do not look like one."""
        size = self.marker["markersize"] + 2 * MARKER_RIM_POINTS
        return self.marker | {
            "markersize": size,
            "markerfacecolor": BACKGROUND,
            "markeredgecolor": BACKGROUND,
        }


def marker_style(color: str, provenance: Provenance) -> dict[str, Any]:
    """Look filled if the time was measured, hollow if it is modelled.

    A filled marker has a rim of paper, so that neighbours of one colour stay apart.
    """
    measured = provenance == "measured"
    return {
        "markersize": 9.0 if measured else 7.5,
        "markerfacecolor": color if measured else BACKGROUND,
        "markeredgecolor": BACKGROUND if measured else color,
        "markeredgewidth": 1.0 if measured else 1.6,
        "linestyle": "none",
    }


def text_halo() -> list[object]:
    """Matplotlib's path effects of a text that is read over lines."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3, foreground=BACKGROUND)]


def run_styles(runs: Sequence[Run]) -> list[RunStyle]:
    """Give each run its looks and label.

    A label says size and other parameters only where runs of its kernel differ in them.
    """
    kernels = {run.measurement.kernel for run in runs}
    differing = {kernel: _differing_parameters(runs, kernel) for kernel in kernels}
    # Colours are few: those with FLOPs, which alone are on the chart, choose first.
    first = sorted(runs, key=lambda run: not run.placement.flop_per_s)
    kinds = list(dict.fromkeys((run.measurement.kernel, _variant_text(run)) for run in first))
    result = []
    for run in runs:
        kernel, tile = run.measurement.kernel, run.measurement.tile
        turn, place = divmod(kinds.index((kernel, _variant_text(run))), len(PALETTE))
        sized = any(name in EXTENT_PARAMETERS for name in differing[kernel])
        size = _problem_size_text(run) if sized else ""
        rest = ", ".join(filter(None, (size, _other_parameters_text(run, differing[kernel]))))
        result.append(
            RunStyle(
                run,
                PALETTE[place],
                LINE_STYLES[turn % len(LINE_STYLES)],
                kernel if tile is None else f"{kernel} {tile}",
                f" · {rest}" if rest else "",
                (kernel, f" · {rest}" if rest else ""),
            )
        )
    return result


def _problem_size_text(run: Run) -> str:
    """The extents of the problem, as short as they can be said: `2048`, `100x57x75`."""
    extents = [
        value for name, value in run.measurement.parameters.items() if name in EXTENT_PARAMETERS
    ]
    return str(extents[0]) if len(set(extents)) == 1 else "x".join(map(str, extents))


def _other_parameters_text(run: Run, names: Collection[str]) -> str:
    """Some of the parameters, of those that are neither an extent nor the tile: `stride 2`."""
    parameters = run.measurement.parameters.items()
    return parameters_text(
        {
            name: value
            for name, value in parameters
            if name in names and name not in (*EXTENT_PARAMETERS, "tile")
        }
    )


def _differing_parameters(runs: Iterable[Run], kernel: str) -> Collection[str]:
    """The parameters in which runs of one kernel differ; lists only where nothing else does."""
    given = [run.measurement.parameters for run in runs if run.measurement.kernel == kernel]
    names = {name for each in given for name in each}
    differ = {name: 0 for name in sorted(names) if len({each.get(name) for each in given}) > 1}
    return without_lists(differ) or differ


def _variant_text(run: Run) -> str:
    return f"{_problem_size_text(run)}, {_other_parameters_text(run, run.measurement.parameters)}"
