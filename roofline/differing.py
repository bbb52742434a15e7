"""The parameters that tell launches of one kernel apart, without those that follow from others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.kernels.user.launch_options import RECORDED_OPTIONS
from memlab.roofline.units import without_lists

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Parameters = Mapping[str, int | str]


def differing_parameters(launches: Sequence[Parameters]) -> set[str]:
    """Name the parameters in which launches differ.

    Lists of a user kernel (its arguments) are among them only where nothing else differs, and
    options of the launch (the grid `ceil(N/B)`) only where the symbols do not tell them.

    Args:
        launches: The parameters of each launch.
    """
    names = {name for parameters in launches for name in parameters}
    different = {
        name: 0 for name in names if len({parameters.get(name) for parameters in launches}) > 1
    }
    named = set(without_lists(different) or different)
    symbols = named - {*RECORDED_OPTIONS}
    return {name for name in named if name in symbols or not _is_told(name, symbols, launches)}


def _is_told(name: str, by: Collection[str], launches: Sequence[Parameters]) -> bool:
    """Whether launches that are equal in some parameters are equal in another one, too."""
    values: dict[tuple[int | str | None, ...], set[int | str | None]] = {}
    for parameters in launches:
        key = tuple(map(parameters.get, by))
        values.setdefault(key, set()).add(parameters.get(name))
    return all(len(different) == 1 for different in values.values())
