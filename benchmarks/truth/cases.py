"""The launches that are compared: where each comes from, and how it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.counters import DATASHEET, identity, launches
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.kernels.launch import Launch

CATALOG_KIND = "catalog"


@dataclass(frozen=True)
class Case:
    """A launch.

    Attributes:
        name: Its name; no other launch has it.
        kind: The kind of kernel, by which errors are grouped.
        held_out: Whether its errors are looked at only when the models are complete.
        launch: The launch, on the device that was measured.
    """

    name: str
    kind: str
    held_out: bool
    launch: Launch


def catalog_cases() -> list[Case]:
    """The launches of the catalog that `benchmarks.counters` compares."""
    made = launches(launch_limits(loader.load_datasheet(DATASHEET)))
    return [Case(_catalog_name(launch), CATALOG_KIND, False, launch) for launch in made]


def all_cases() -> Sequence[Case]:
    """All launches."""
    return catalog_cases()


def _catalog_name(launch: Launch) -> str:
    return f"{launch.kernel} {identity(launch)['parameters']}".rstrip()
