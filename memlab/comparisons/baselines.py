"""`memlab.save_baseline` and `check_baseline`: what launches cost, in a file of the repository."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.device.devices import open_device
from memlab.errors import DeviceError, MemlabError, UsageError
from memlab.named_runs import find_runs
from memlab.results import BaselineCheck
from memlab.roofline.comparison.compare import compare_runs
from memlab.roofline.comparison.conditions import (
    judge_comparison,
    parse_condition,
    regressions,
)
from memlab.roofline.comparison.records import Comparison, ConditionResult
from memlab.roofline.comparison.times import DEFAULT_THRESHOLD
from memlab.roofline.comparison.wording import run_title
from memlab.roofline.documents.baseline import recipe_text, runs_from_baseline
from memlab.roofline.run import Recipe
from memlab.running import run as run_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memlab.device.measurement import Progress
    from memlab.named_runs import RunName
    from memlab.roofline.run import Run

MAX_FILE_BYTES = 64 << 20
"""The longest baseline that is read."""


def baseline_runs(
    path: Path | str,
    runs: Sequence[RunName] = (),
    *,
    device: str | int | None = None,
    store: Path | str | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
) -> list[Run]:
    """Gather the runs that a baseline file should hold.

    Args:
        path: The file. If it exists, and no runs are given, its launches run again, together with
            kernels that are new in `./memlab.toml`; those that are gone are left out.
        runs: The runs to save, as for `memlab.compare`. Without any, and without the file, the
            kernels of `./memlab.toml` run or, without these, the newest stored run is taken.
        device: The device of launches that are new; None takes the default one.
        store: The file of the stored runs, as for `memlab.runs`.
        timeout_s: The longest time of one launch, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes.
        progress: Called with the current step and its completed fraction.

    Returns:
        The runs, for `baseline_text`.

    Raises:
        UsageError: There are no such runs, or one cannot be launched again.
        DeviceError: A device is not available.
        MemlabError: A kernel failed.
    """
    if runs:
        return [_repeatable(run) for name in runs for run in find_runs(name, store)]
    limits = {"timeout_s": timeout_s, "memory_bytes": memory_bytes, "progress": progress}
    project = _project_kernels()
    launches: list[tuple[Recipe, str | int | None]] = []
    if Path(path).exists():
        for recorded in read_baseline(path):
            assert recorded.recipe is not None
            if not _is_gone(recorded.recipe, project):
                launches.append((recorded.recipe, recorded.measurement.device.key))
    known = {recipe.kernel for recipe, _ in launches}
    launches += [(Recipe(name), device) for name in project if name not in known]
    if launches:
        return [_repeatable(_launched(recipe, device=on, **limits)) for recipe, on in launches]
    from memlab.roofline.store.store import Store

    kept = Store(store)
    ids = kept.ids()
    if not ids:
        raise UsageError(
            f"there is nothing to save: {kept.path} has no run, and memlab.toml no kernel; "
            "make a run with 'memlab run', or a memlab.toml with 'memlab init FILE.cu'"
        )
    return [_repeatable(kept.get(ids[-1]))]


def save_baseline(
    path: Path | str, *runs: RunName, overwrite: bool = False, **options: Any
) -> list[Run]:
    """Save what launches cost, to be checked after changes with `check_baseline`.

    Examples:
        memlab.save_baseline("baseline.json", memlab.run("tiled", width=512))

    Args:
        path: The file, for the repository of the kernels.
        *runs: The runs. Without any, the launches of an existing file run again; without a file,
            the kernels of `./memlab.toml` run or, without these, the newest stored run is saved.
        overwrite: Whether to replace an existing file.
        **options: `device`, `store`, `timeout_s`, `memory_bytes` and `progress`, as for
            `memlab.run`.

    Returns:
        The runs that were saved.

    Raises:
        UsageError: There are no such runs, one cannot be launched again, or the file exists or
            cannot be written.
        DeviceError: A device is not available.
        MemlabError: A kernel failed.
    """
    from memlab.roofline.documents.baseline import baseline_text

    file = Path(path)
    if file.exists() and not overwrite:
        raise UsageError(f"{file} exists: add overwrite=True to replace it")
    saved = baseline_runs(file, runs, **options)
    try:
        file.write_text(baseline_text(saved), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file} ({error.strerror}): choose another file") from None
    return saved


def check_baseline(
    path: Path | str,
    *,
    fail_if: Sequence[str] = (),
    threshold: float = DEFAULT_THRESHOLD,
    force: bool = False,
    device: str | int | None = None,
    samples: int | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
) -> BaselineCheck:
    """Run the launches of a baseline again, and compare.

    Args:
        path: The file that `save_baseline` wrote. Its paths are relative to the current folder.
        fail_if: The conditions of the gate, as for `memlab.compare`. Without any, it fails where a
            counter that costs grew, local memory grew, or a time is slower by more than the
            threshold.
        threshold: The relative difference of times up to which they count as equal.
        force: Whether to compare times in spite of obstacles.
        device: Another device than the recorded ones.
        samples: Launches that a GPU times.
        timeout_s: The longest time of one launch, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes.
        progress: Called with the current step and its completed fraction.

    Returns:
        The check: `check.failed`, `check.comparison` with a pair for each launch and the judged
        conditions, and the kernels that are new in `./memlab.toml`. A launch that is gone, or that
        fails, is a condition that could not be judged.

    Raises:
        UsageError: The file cannot be read, a condition is malformed, or there is no such device.
        DeviceError: A device is not available.
    """
    conditions = [parse_condition(text) for text in fail_if]
    recorded = read_baseline(path)
    if device is not None:
        open_device(device)  # a misspelt name is an error of usage, not a launch that failed
    limits = {"timeout_s": timeout_s, "memory_bytes": memory_bytes, "progress": progress}
    pairs, gone, broken = [], [], []
    for old in recorded:
        assert old.recipe is not None
        on = old.measurement.device.key if device is None else device
        try:
            new = _launched(old.recipe, device=on, samples=samples, label="now", **limits)
        except DeviceError:
            raise
        except MemlabError as error:
            gone.append(old)
            broken.append(_broken(old, str(error)))
            continue
        pairs.append(compare_runs(old, new, threshold=threshold, force=force))
    comparison = Comparison(tuple(pairs), tuple(gone), (), threshold, force)
    judged = judge_comparison(comparison, conditions) if conditions else regressions(comparison)
    names = {old.recipe.kernel for old in recorded if old.recipe}
    return BaselineCheck(
        replace(comparison, conditions=(*broken, *judged)),
        tuple(name for name in _project_kernels() if name not in names),
    )


def read_baseline(path: Path | str) -> list[Run]:
    """Read the runs of a baseline file.

    Raises:
        UsageError: It cannot be read, or is no baseline.
    """
    file = Path(path)
    try:
        if file.is_dir():
            raise UsageError(f"{file} is a folder: name a file, such as {file / 'baseline.json'}")
        if file.exists() and file.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f"{file} has more than {MAX_FILE_BYTES >> 20} MiB: it is no baseline")
        return runs_from_baseline(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{file} does not exist: 'memlab baseline save {file}' makes it") from None
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read {file} ({error}): check its name") from None
    except UsageError as error:
        if str(error).startswith(str(file)):
            raise
        raise UsageError(f"{file} cannot be used: {error}") from None


def _launched(recipe: Recipe, **how: Any) -> Run:
    arguments: dict[str, Any] = {**how, **recipe.options}
    return run_kernel(recipe.kernel, seed=recipe.seed, **arguments)


def _project_kernels() -> Iterable[str]:
    from memlab.kernels.user.project import read_user_kernels

    return read_user_kernels()


def _is_gone(recipe: Recipe, project: Iterable[str]) -> bool:
    """Tell whether a launch can no longer be made: its name or its file is not there."""
    from memlab.kernels.catalog import CATALOG
    from memlab.kernels.user.kernel import split_target

    if recipe.kernel in CATALOG:
        return False
    place = split_target(recipe.kernel)
    return not Path(place[0]).exists() if place else recipe.kernel not in project


def _broken(old: Run, reason: str) -> ConditionResult:
    assert old.recipe is not None
    first, *others = filter(None, map(str.strip, reason.split("\n")))  # a compiler's log is long
    reason = f"{first}; {others[-1]}" if others else first
    if _is_gone(old.recipe, _project_kernels()):
        reason = f"removed: {reason}; 'memlab baseline save' leaves it out"
    return ConditionResult("launch", run_title(old), "launch", "not judged", reason)


def _repeatable(run: Run) -> Run:
    """Return a run that can be launched again.

    Raises:
        UsageError: It cannot be.
    """
    measurement = run.measurement
    if run.recipe is None:
        raise UsageError(
            f"{run_title(run)} cannot be launched again: its arguments are arrays of a Python "
            "program, or an older memlab recorded it; run it again with 'memlab run'"
        )
    if measurement.verification.status == "failed":
        raise UsageError(f"{recipe_text(run.recipe)} is no baseline, since its output is wrong")
    return run
