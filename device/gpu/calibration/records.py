"""Records of a calibration: raw samples, figures and failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from memlab.presentation import Presentable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.properties import DeviceProperties

FigureValue: TypeAlias = "int | float | Mapping[str, float]"
"""A figure of a datasheet: a number, or a table of numbers."""


@dataclass(frozen=True)
class RawSample:
    """One measured number.

    Attributes:
        series: What was measured, with its unit, such as `pipe_lanes_per_clock`.
        key: Of what, or at which number, such as `fma` or `32`; may be empty.
        value: The number, in the unit of the series.
    """

    series: str
    key: str
    value: float


@dataclass(frozen=True)
class Failure:
    """A micro-benchmark that could not be measured.

    Attributes:
        benchmark: Its name.
        reason: The message of the error.
    """

    benchmark: str
    reason: str


@dataclass(frozen=True, repr=False)
class Calibration(Presentable):
    """The result of calibrating a GPU.

    Attributes:
        properties: The datasheet: the driver's attributes and the measured figures, each with its
            source.
        measured: The names of the measured figures.
        samples: All raw samples, in the order of measurement.
        failures: The micro-benchmarks that could not be measured.
        duration_s: How long it took, seconds.
    """

    properties: DeviceProperties
    measured: tuple[str, ...]
    samples: tuple[RawSample, ...]
    failures: tuple[Failure, ...]
    duration_s: float

    def datasheet(self) -> str:
        """The datasheet as TOML text, which `device="my-gpu.toml"` takes from a file."""
        from memlab.device.datasheets.writer import datasheet_text

        return datasheet_text(self.properties)
