"""The loop of a sweep: points are asked for, run where there is room, stored and told."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from memlab.errors import Incomplete, UsageError
from memlab.roofline.documents.runs import run_from_document
from memlab.roofline.run import Run
from memlab.roofline.sweep.records import SweepRow
from memlab.sweeps.interrupts import remembered_interrupts
from memlab.sweeps.points import PointOutcome, point_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlab.device.measurement import Progress
    from memlab.roofline.store.store import Store
    from memlab.roofline.store.sweeps import StoredPoint, StoredSweep, SweepStore
    from memlab.roofline.sweep.objective import Objective
    from memlab.roofline.sweep.strategies import Strategy
    from memlab.sweeps.definition import SweepDefinition
    from memlab.sweeps.points import PointJob
    from memlab.sweeps.pools import Pool


class SweepLoop:
    """Runs the points of a sweep.

    Attributes:
        excluded: Points that the restrictions excluded so far.
    """

    def __init__(
        self,
        definition: SweepDefinition,
        objective: Objective,
        *,
        store: Store | None = None,
        sweeps: SweepStore | None = None,
        sweep: StoredSweep | None = None,
        known: dict[str, StoredPoint] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Prepare a sweep.

        Args:
            definition: The sweep.
            objective: What ranks the points.
            store: The store that takes the runs; None stores nothing.
            sweeps: The sweeps in that store.
            sweep: The sweep's entry there.
            known: Outcomes that need not be run again, by the keys of the points.
            progress: Called with the points that are done and the time left.
        """
        self._definition, self._objective = definition, objective
        self._store, self._sweeps, self._sweep = store, sweeps, sweep
        self._known = known or {}
        self._progress = progress
        self._keys: dict[int, str] = {}
        self._began, self._ran = time.monotonic(), 0
        self._looked_at: set[int] = set()
        self._rows: dict[int, SweepRow] = {}
        self.excluded = 0

    @property
    def rows(self) -> list[SweepRow]:
        """What came of the points so far, in the order of the space."""
        return [self._rows[number] for number in sorted(self._rows)]

    def admits(self, number: int) -> bool:
        """Whether a point may be run; counts those that may not."""
        admitted = self._definition.admits(number)
        if not admitted and number not in self._looked_at:
            self._looked_at.add(number)
            self.excluded += 1
        return admitted

    def run(self, strategy: Strategy, pool: Pool) -> None:
        """Run all points that the strategy asks for.

        Raises:
            Incomplete: A point could not be stored.
            DeviceError: There is nothing left that could run points.
            KeyboardInterrupt: Ctrl-C, at the latest after the point that runs.
        """
        with remembered_interrupts() as check_interrupt:
            self._run(strategy, pool, check_interrupt)

    def _run(self, strategy: Strategy, pool: Pool, check_interrupt: Callable[[], None]) -> None:
        running = 0
        more = True
        while more or running:
            check_interrupt()
            while more and pool.has_room():
                number = strategy.ask()
                more = number is not None
                if number is not None:
                    running += self._begin(number, strategy, pool)
            if running:
                for job, outcome in pool.wait():
                    running -= 1
                    self._ran += 1
                    self._finish(job.number, self._keys.get(job.number, ""), outcome, strategy)

    def _begin(self, number: int, strategy: Strategy, pool: Pool) -> int:
        """Submit a point; return 0 where its outcome is known already, else 1."""
        self._report()
        try:
            job = self._definition.job(number)
            if self._sweeps is not None:
                key = point_key(job, pool.device_facts(_device_name(job)))
                self._keys[number] = key
                stored = self._known.get(key)
                if stored is not None:
                    self._reuse(number, key, stored, strategy)
                    return 0
        except UsageError as error:
            outcome = PointOutcome("impossible", str(error), exit_code=error.exit_code)
            key = f"impossible {sorted(self._definition.values(number).items())}"
            self._finish(number, key, outcome, strategy)
            return 0
        pool.submit(job)
        return 1

    def _reuse(self, number: int, key: str, stored: StoredPoint, strategy: Strategy) -> None:
        assert self._store is not None
        assert self._sweeps is not None
        assert self._sweep is not None
        run = None if stored.run is None else self._store.get(stored.run)
        outcome = stored.outcome
        self._sweeps.reuse_point(self._sweep, key, stored)
        self._add_row(number, outcome, run, strategy, reused=True)

    def _finish(self, number: int, key: str, outcome: PointOutcome, strategy: Strategy) -> None:
        """Store what came of a point, and tell the strategy."""
        run = None if outcome.document is None else run_from_document(outcome.document)
        facts = {name: value for name, value in asdict(outcome).items() if name != "document"}
        failure: Incomplete | None = None
        if self._sweeps is not None and self._sweep is not None:
            if run is not None:
                run = replace(run, identity=replace(run.identity, sweep=self._sweep.name))
            try:
                run_id = self._sweeps.add_point(self._sweep, key, run, facts)
                run = None if run is None else replace(run, id=run_id)
            except Incomplete as error:
                failure = error
        self._add_row(number, facts, run, strategy)
        if failure is not None:
            raise failure

    def _add_row(
        self,
        number: int,
        outcome: Any,
        run: Run | None,
        strategy: Strategy,
        reused: bool = False,
    ) -> None:
        done = outcome["status"] == "done" and run is not None
        energy_j = outcome.get("energy_j")
        value = self._objective.value(run, energy_j) if done and run is not None else None
        self._rows[number] = SweepRow(
            self._definition.values(number),
            outcome["status"],
            outcome.get("reason", ""),
            run,
            value,
            energy_j,
            outcome.get("host", ""),
            reused,
        )
        strategy.tell(number, None if value is None else self._objective.rank(value))
        self._report()

    def _report(self) -> None:
        if self._progress is None:
            return
        total = self._definition.space.size - self.excluded
        total = min(total, self._definition.budget or total)
        done = len(self._rows)
        left = ""
        if self._ran:
            seconds = (time.monotonic() - self._began) / self._ran * max(total - done, 0)
            left = f", {duration_text(seconds)} left"
        self._progress(f"{done} of {total} points{left}", done / max(total, 1))


def duration_text(seconds: float) -> str:
    """Write a time that is left: `40 s`, `3:05 min`, `2:10 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def _device_name(job: PointJob) -> str | None:
    return None if job.device is None else str(job.device)
