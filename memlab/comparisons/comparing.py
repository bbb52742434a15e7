"""`memlab.compare`: two runs, or two sets of runs, side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.device.datasheets import loader
from memlab.device.devices import open_device
from memlab.errors import MemlabError, UsageError
from memlab.named_runs import find_runs
from memlab.roofline.ceilings import ceilings
from memlab.roofline.comparison.compare import compare_runs, match_runs
from memlab.roofline.comparison.conditions import judge_comparison, parse_condition
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.comparison.times import DEFAULT_THRESHOLD
from memlab.roofline.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from memlab.device.measurement import DeviceSummary
    from memlab.device.properties import DeviceProperties
    from memlab.named_runs import RunName
    from memlab.roofline.run import Ceiling, Run


def compare(
    a: RunName | None = None,
    b: RunName | None = None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
    force: bool = False,
    fail_if: Sequence[str] = (),
    store: Path | str | None = None,
) -> Comparison:
    """Put two runs, or two sets of runs, side by side.

    The machine code comes first, then the counters, then the times: where the code is the same, a
    difference has another reason; emulated counters have no noise; measured times have, and are
    called faster or slower only where the 95% interval of their difference leaves the threshold.

    Examples:
        memlab.compare(memlab.run("tiled", tile=8), memlab.run("tiled", tile=16))
        memlab.compare("before", "after").pairs[0].verdict

    Args:
        a: The first run: a record, its number in the store, its label, the name of its sweep, or a
            JSON file. A label, a sweep, a file or a list may stand for several runs, which are
            matched by kernel, parameters and device. None takes the last but one stored run.
        b: The second run; None takes the last stored one.
        threshold: The relative difference of times up to which they count as equal, 0.01 for 1%.
        force: Whether to compare times in spite of obstacles: other GPUs, drivers or clocks,
            throttling, other sizes of work, a measured and a modelled time.
        fail_if: Conditions such as `time>+3%`, `global_load_sectors>0%` or `fraction_of_roof<80%`,
            on the columns of `memlab run --csv`: a limit with a sign, or in percent of a figure
            that is no share, is a change; others are B's own value.
        store: The file of the stored runs; None takes `MEMLAB_STORE` from the environment, else a
            file in the user's data folder.

    Returns:
        The comparison: `comparison.pairs` with a verdict, figures and source lines each, the runs
        without a partner, the judged conditions, and in `comparison.failed` whether one holds.

    Raises:
        UsageError: There are no such runs, none of them match, the threshold is out of range, or a
            condition is malformed or names no figure.
    """
    if not isinstance(threshold, int | float) or not 0 <= threshold < 1:
        raise UsageError(f"threshold must be from 0 to below 1, got {threshold!r}: use 0.01 for 1%")
    conditions = [parse_condition(text) for text in fail_if]
    first, second = _chosen(a, b, store)
    pairs, only_a, only_b = match_runs(first, second)
    if not pairs:
        raise UsageError(
            f"none of the {len(first)} and {len(second)} runs have the same kernel and parameters: "
            "compare two single runs, or runs of the same points"
        )
    comparison = Comparison(
        tuple(compare_runs(one, other, threshold=threshold, force=force) for one, other in pairs),
        tuple(only_a),
        tuple(only_b),
        threshold,
        force,
    )
    return replace(comparison, conditions=judge_comparison(comparison, conditions))


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw a comparison: both runs under the roof, with an arrow from A to B at each level.

    Args:
        comparison: The comparison.

    Returns:
        The matplotlib figure.

    Raises:
        UsageError: The pairs are of several devices, or the ceilings of a device are not known.
    """
    from memlab.roofline.plots.comparison import draw_comparison

    first, second = (
        {run.measurement.device.name: run.measurement.device for run in runs}
        for runs in (
            [pair.a for pair in comparison.pairs],
            [pair.b for pair in comparison.pairs],
        )
    )
    if len(first) > 1 or len(second) > 1:
        names = ", ".join({**first, **second})
        raise UsageError(f"a picture has the ceilings of one device, got {names}: compare each")
    (a,), (b,) = first.values(), second.values()
    other = (_ceilings(a), a.name) if a.name != b.name else None
    return draw_comparison(comparison, _ceilings(b), b.name, other)


def known_properties(device: DeviceSummary) -> DeviceProperties | None:
    """Give a device's properties; its datasheet's where the GPU is in another machine.

    Returns:
        The properties; None where neither the device nor a datasheet of its name is here.
    """
    for key in dict.fromkeys((device.key, *loader.datasheet_names())):
        try:
            properties = open_device(key).properties
        except MemlabError:
            continue
        if properties.name == device.name:
            return properties
    return None


def known_ceilings(device: DeviceSummary) -> tuple[Ceiling, ...]:
    """Give a device's ceilings; none where its properties are not known."""
    properties = known_properties(device)
    return ceilings(properties) if properties else ()


def _ceilings(device: DeviceSummary) -> tuple[Ceiling, ...]:
    """Give a device's ceilings.

    Raises:
        UsageError: They are not known.
    """
    if found := known_ceilings(device):
        return found
    raise UsageError(
        f"the ceilings of {device.name} are not known here: draw this comparison on its machine"
    )


def _chosen(
    a: RunName | None, b: RunName | None, store: Path | str | None
) -> tuple[list[Run], list[Run]]:
    """Find the runs to compare; missing ones are the last of the store."""
    if a is not None and b is not None:
        return find_runs(a, store), find_runs(b, store)
    kept = Store(store)
    ids = kept.ids()
    if a is not None:
        first = find_runs(a, store)
        taken = {run.id for run in first}
        ids = [number for number in ids if number not in taken]
        if not ids:
            raise UsageError(f"{kept.path} has no other run: 'memlab run' makes one")
        return first, [kept.get(ids[-1])]
    if b is not None:
        raise UsageError("the second run is given without the first: give both, or none")
    if len(ids) < 2:
        raise UsageError(
            f"a comparison takes two runs, and {kept.path} has {len(ids)}: 'memlab run' makes them"
        )
    return [kept.get(ids[-2])], [kept.get(ids[-1])]
