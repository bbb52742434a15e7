"""`memlab.sweep`: one or several kernels at many points, ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlab.device.datasheets import loader
from memlab.device.devices import open_device
from memlab.errors import Incomplete, MemlabError, UsageError
from memlab.kernels.user.kernel import is_object
from memlab.launching import current_time
from memlab.roofline.store.store import Store
from memlab.roofline.store.sweeps import StoredPoint, StoredSweep, SweepStore
from memlab.roofline.sweep.objective import ENERGY, find_objective
from memlab.roofline.sweep.records import Sweep, ranked
from memlab.roofline.sweep.strategies import check_strategy, make_strategy
from memlab.running import writable_store
from memlab.sweeps.definition import SweepDefinition, make_definition, read_definition
from memlab.sweeps.loop import SweepLoop
from memlab.sweeps.points import RunOptions
from memlab.sweeps.pools import OwnProcess, Pool

if TYPE_CHECKING:
    from pathlib import Path

    from memlab.device.measurement import DeviceSummary, Progress
    from memlab.device.properties import DeviceProperties
    from memlab.launching import KernelName


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep.

    Attributes:
        result: The sweep with the points that are done.
    """

    def __init__(self, message: str, result: Sweep) -> None:
        super().__init__(message)
        self.result = result


def sweep(
    *kernels: KernelName,
    device: str | int | Sequence[str | int] | None = None,
    restrict: str | Sequence[str] = (),
    objective: str = "time",
    strategy: str = "all",
    budget: int | None = None,
    seed: int = 0,
    samples: int | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    keep: bool = False,
    name: str = "",
    resume: bool = False,
    again: bool = False,
    store: Path | str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Sweep:
    """Run kernels at all combinations of values, and rank the runs.

    A point that is impossible, faults or gives a wrong output keeps its reason and does not stop
    the others.

    Examples:
        memlab.sweep("tiled", tile=[8, 16, 32], width="512:4096:x2", device=["h200", "a100"])
        memlab.sweep("k.cu:scale", symbols={"N": ["1M", "4M"], "B": [128, 256]},
                     defines={"TILE": [8, 16]}, grid="ceil(N/B)", block="B",
                     args=["f32[N]", "inout:f32[N]", "N"], restrict="B*TILE <= 1024")

    Args:
        *kernels: The kernels, as for `memlab.run`; all of the catalog or all the user's own.
            Without any, `resume` continues a sweep in the store.
        device: The devices, as for `memlab.run`, one or several.
        restrict: Conditions over the parameters or symbols, such as `tile*tile <= width`; points
            that do not meet them are left out.
        objective: The figure that ranks the points: `time`, `energy` (joules per launch, on a
            GPU), `flop_per_s`, `fraction_of_ceiling`, `occupancy` or a counter.
        strategy: `all` points, some at `random`, or those that the optimiser `tpe` asks for.
        budget: The most points to run; None for all.
        seed: Seed of the random inputs, and of the strategy.
        samples: Launches that a GPU times for each point, as for `memlab.run`.
        timeout_s: The longest time of one launch, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes; None allows the memory
            that is free.
        keep: Whether to store the runs, and to take from the store what was run before.
        name: The name of the sweep in the store; empty for `sweep-1` and so on.
        resume: Whether to continue a sweep in the store: the one of this name, else the newest, or
            with kernels the newest of the same points.
        again: Whether to run points again that the store has.
        store: The file in which to store it; None takes `MEMLAB_STORE` from the environment, else
            a file in the user's data folder.
        workers: Runs points in so many processes of this machine, one a GPU, or one a share of
            the cores where devices are emulated. None runs one after the other in this process.
        scheduler: The address of a Dask cluster whose workers run the points, `tcp://host:8786`.
        progress: Called with the points that are done and the time left, and their fraction.
        **parameters: As for `memlab.run`, but the parameters of catalog kernels, and the values of
            `symbols` and `defines` of user kernels, may be lists, or texts such as `8,16,32`,
            `512:4096:x2` and `32:128:+32`.

    Returns:
        The sweep: `rows` (best first), `best`, `frame()`, `figure()`, `csv()`.

    Raises:
        UsageError: An unknown kernel, device, parameter, objective or strategy, a malformed list,
            or a store that cannot be used.
        DeviceError: A device, or what the sweep needs, is not available.
        Incomplete: A point could not be stored; its `result` is the sweep as far as it came.
        SweepInterrupted: Ctrl-C; its `result` is the sweep as far as it came.
    """
    if (resume or name or again) and not keep:
        raise UsageError("only a stored sweep has a name and can be resumed: add keep=True")
    ranking = find_objective(objective)
    check_strategy(strategy, budget)
    options = RunOptions(seed, samples, timeout_s, memory_bytes, ranking.name == ENERGY)
    kept = writable_store(store) if keep else None
    if not kernels and resume and kept is not None:
        if parameters or device is not None:
            raise UsageError("a sweep that is resumed has its own points: name kernels with them")
        entry = SweepStore(kept).find(name)
        definition = read_definition(entry.definition)
        ranking = find_objective(definition.objective)
    else:
        definition = make_definition(
            kernels, device, parameters, restrict, options, ranking.name, strategy, budget
        )
        check_strategy(strategy, budget, definition.space.size)
        entry = None
    definition.check()
    pool = _open_pool(definition, workers, scheduler, progress)
    try:
        if ranking.name == ENERGY:
            pool.require_energy(definition.devices)
        return _run(definition, pool, kept, entry, name, resume, again, progress)
    finally:
        pool.close()


def _run(
    definition: SweepDefinition,
    pool: Pool,
    store: Store | None,
    entry: StoredSweep | None,
    name: str,
    resume: bool,
    again: bool,
    progress: Progress | None,
) -> Sweep:
    """Run a sweep on an open pool, and gather its rows."""
    for device in definition.devices:  # a device that is not there is no point's fault
        pool.device_facts(device or None)
    created_at = current_time().isoformat(timespec="seconds")
    sweeps = None if store is None else SweepStore(store)
    known: dict[str, StoredPoint] = {}
    if sweeps is not None:
        document = _document(definition)
        if entry is None and resume:
            entry = sweeps.find(name, document)
        known = _final(sweeps.points(entry if again else None)) if not again or entry else {}
        entry = entry or sweeps.begin(name, created_at, document)
        created_at = entry.created_at
    objective = find_objective(definition.objective)
    loop = SweepLoop(
        definition,
        objective,
        store=store,
        sweeps=sweeps,
        sweep=entry,
        known=known,
        progress=progress,
    )
    strategy = make_strategy(
        definition.strategy,
        definition.space,
        loop.admits,
        definition.budget,
        definition.options.seed,
    )

    def result() -> Sweep:
        rows = ranked(loop.rows, objective)
        best = next((row.run for row in rows if row.status == "done" and row.run), None)
        return Sweep(
            entry.name if entry else "",
            created_at,
            definition.space.axes,
            objective,
            rows,
            definition.space.size,
            loop.excluded,
            None if best is None else _properties(best.measurement.device),
        )

    try:
        loop.run(strategy, pool)
    except KeyboardInterrupt:
        made = result()
        raise SweepInterrupted(_interrupted_text(made), made) from None
    except Incomplete as error:
        raise Incomplete(str(error), result()) from error
    if sweeps is not None and entry is not None:
        if any(row.run or row.status != "impossible" for row in loop.rows):
            sweeps.finish(entry)
        else:  # a sweep without a run: there is nothing to show or to resume
            sweeps.discard(entry)
            entry = None
    return result()


def _properties(device: DeviceSummary) -> DeviceProperties | None:
    """The figures of a device that a point ran on, which may be a GPU of another machine."""
    if device.kind == "cuda":
        sheets = map(loader.load_datasheet, loader.datasheet_names())
        return next((sheet for sheet in sheets if sheet.name == device.name), None)
    try:
        return open_device(device.key).properties
    except MemlabError:
        return None


def _interrupted_text(made: Sweep) -> str:
    total = made.points - made.excluded
    if not made.name:
        return f"interrupted after {len(made.rows)} of {total} points"
    return (
        f"interrupted: {len(made.rows)} of {total} points of {made.name} are kept; "
        f"'memlab sweep --resume' does the rest"
    )


def _document(definition: SweepDefinition) -> Mapping[str, Any]:
    try:
        return definition.document()
    except UsageError as error:
        return {"not_resumable": str(error)}


def _final(points: Mapping[str, StoredPoint]) -> dict[str, StoredPoint]:
    """The outcomes that would come again; what was lost with a process may succeed."""
    return {key: point for key, point in points.items() if point.outcome["status"] != "lost"}


def _open_pool(
    definition: SweepDefinition,
    workers: int | None,
    scheduler: str | None,
    progress: Progress | None,
) -> Pool:
    if workers is None and scheduler is None:
        return OwnProcess(definition.options)
    if workers is not None and scheduler is not None:
        raise UsageError("--workers and --scheduler were both given: choose one")
    for kernel in definition.kernels:
        if not isinstance(kernel, str) and is_object(kernel):
            raise UsageError(
                f"{kernel.target} is a function in memory, which other processes do not have: "
                "leave out workers and scheduler"
            )
    from memlab.sweeps.cluster import open_cluster

    return open_cluster(definition, workers, scheduler, progress)
