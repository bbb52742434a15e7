"""The sweeps in a store: their definitions, and the outcome of each point with its run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memlab.errors import Incomplete, UsageError
from memlab.roofline.store.database import SWEEPS_SCHEMA_VERSION
from memlab.roofline.store.store import Store, run_columns

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from memlab.roofline.run import Run

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")


@dataclass(frozen=True)
class StoredSweep:
    """A sweep in the store.

    Attributes:
        id: Its number.
        name: Its name, which its runs carry.
        created_at: When it began, ISO 8601 in UTC.
        finished: Whether all of its points have an outcome.
        definition: What it varies and how, as a JSON document.
    """

    id: int
    name: str
    created_at: str
    finished: bool
    definition: Mapping[str, Any]


@dataclass(frozen=True)
class StoredPoint:
    """The outcome of a point.

    Attributes:
        run: The number of its run; None where there is none.
        outcome: The rest: status, reason, energy, host.
    """

    run: int | None
    outcome: Mapping[str, Any]


class SweepStore:
    """The sweeps in one file; its errors are those of `Store`."""

    def __init__(self, store: Store) -> None:
        self._store, self._file = store, store.file

    def begin(self, name: str, created_at: str, definition: Mapping[str, Any]) -> StoredSweep:
        """Enter a sweep.

        Args:
            name: Its name; empty for `sweep-1`, `sweep-2` and so on.
            created_at: See `StoredSweep`.
            definition: See `StoredSweep`.

        Raises:
            UsageError: Also where another sweep has the name, or it is none.
        """
        if name and not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot name a sweep: use letters, digits, '-', '_' and '.', as in tiles"
            )
        insert = "INSERT INTO sweeps (name, created_at, finished, definition) VALUES (?, ?, 0, ?)"
        with self._file.open_for_writing() as connection:
            names = {text.decode() for (text,) in connection.execute("SELECT name FROM sweeps")}
            if name in names:
                raise UsageError(
                    f"{self._file.path} has a sweep {name!r}: choose another name, or continue it "
                    f"with 'memlab sweep --resume --name {name}'"
                )
            number = 1 + max(
                (int(text[6:]) for text in names if re.fullmatch(r"sweep-\d{1,9}", text)), default=0
            )
            name = name or f"sweep-{number}"
            row = (name, created_at, json.dumps(definition))
            number = connection.execute(insert, row).lastrowid or 0
        return StoredSweep(number, name, created_at, False, definition)

    def find(self, name: str = "", definition: Mapping[str, Any] | None = None) -> StoredSweep:
        """Find a sweep to continue.

        Args:
            name: Its name; empty for the newest.
            definition: Only a sweep with this definition.

        Raises:
            UsageError: Also where there is none.
        """
        query = "SELECT id, name, created_at, finished, definition FROM sweeps ORDER BY id DESC"
        rows = self._read(query)
        for number, text, created_at, finished, document in rows:
            if name in ("", text.decode()):
                stored = json.loads(document)
                if definition is None or stored == json.loads(json.dumps(definition)):
                    return StoredSweep(
                        number, text.decode(), created_at.decode(), bool(finished), stored
                    )
        names = [row[1].decode() for row in rows]
        if name in names:
            raise UsageError(
                f"the sweep {name!r} has other kernels, points or options: continue it as it was "
                f"begun with 'memlab sweep --resume --name {name}', or begin this one with "
                "another --name and without --resume"
            )
        if name or definition is None:
            known = f"known: {', '.join(names[:10])}" if names else "it has none"
            which = f"sweep {name!r}" if name else "sweep"
            raise UsageError(f"{self._file.path} has no {which} to resume ({known})")
        raise UsageError(
            f"{self._file.path} has no sweep of these points to resume: leave out --resume"
        )

    def finish(self, sweep: StoredSweep) -> None:
        """Note that all points of a sweep have an outcome."""
        with self._file.open_for_writing() as connection:
            connection.execute("UPDATE sweeps SET finished = 1 WHERE id = ?", (sweep.id,))

    def discard(self, sweep: StoredSweep) -> None:
        """Remove a sweep and the outcomes of its points; runs stay."""
        with self._file.open_for_writing() as connection:
            connection.execute("DELETE FROM sweep_points WHERE sweep = ?", (sweep.id,))
            connection.execute("DELETE FROM sweeps WHERE id = ?", (sweep.id,))

    def add_point(
        self, sweep: StoredSweep, point: str, run: Run | None, outcome: Mapping[str, Any]
    ) -> int | None:
        """Store the outcome of a point together with its run; both, or neither.

        Args:
            sweep: The sweep.
            point: The key of the point.
            run: Its run, without a number; None where there is none.
            outcome: See `StoredPoint`.

        Returns:
            The number of the run.

        Raises:
            Incomplete: They cannot be stored; carries the run.
        """
        try:
            columns = None if run is None else run_columns(run)
            with self._file.open_for_writing() as connection:
                number = None
                if columns is not None:
                    number = connection.execute(
                        "INSERT INTO runs (kernel, device, device_name, document)"
                        " VALUES (?, ?, ?, ?)",
                        columns,
                    ).lastrowid
                _put_point(connection, sweep.id, point, number, json.dumps(outcome))
        except UsageError as error:
            raise Incomplete(f"a point is not stored: {error}", run) from error
        return number

    def reuse_point(self, sweep: StoredSweep, point: str, stored: StoredPoint) -> None:
        """Enter a point of an earlier sweep in this one."""
        with self._file.open_for_writing() as connection:
            _put_point(connection, sweep.id, point, stored.run, json.dumps(stored.outcome))

    def points(self, sweep: StoredSweep | None = None) -> dict[str, StoredPoint]:
        """Read the outcomes of a sweep, or of all, by the keys of the points.

        A point whose run was deleted counts as not run. Of several outcomes the newest counts.
        """
        rows = self._read(
            "SELECT point, sweep_points.run, outcome FROM sweep_points"
            " LEFT JOIN runs ON runs.id = sweep_points.run"
            " WHERE (sweep_points.run IS NULL OR runs.id IS NOT NULL)"
            " AND (:sweep IS NULL OR sweep = :sweep) ORDER BY sweep_points.rowid",
            {"sweep": None if sweep is None else sweep.id},
        )
        return {key.decode(): StoredPoint(run, json.loads(text)) for key, run, text in rows}

    def run_ids(self, name: str) -> list[int]:
        """The numbers of the runs of a sweep, those of earlier sweeps included, oldest first."""
        rows = self._read(
            "SELECT run FROM sweep_points JOIN sweeps ON sweeps.id = sweep"
            " WHERE sweeps.name = :name AND run IS NOT NULL ORDER BY run",
            {"name": name},
        )
        return [number for (number,) in rows]

    def _read(self, query: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        with self._file.open_for_reading() as connection:
            if connection is None or self._file.schema(connection) < SWEEPS_SCHEMA_VERSION:
                return []
            return connection.execute(query, values or {}).fetchall()


def _put_point(
    connection: sqlite3.Connection, sweep: int, point: str, run: int | None, outcome: str
) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO sweep_points (sweep, point, run, outcome) VALUES (?, ?, ?, ?)",
        (sweep, point, run, outcome),
    )
