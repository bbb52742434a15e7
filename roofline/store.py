"""The store of runs and of measured peaks: one SQLite file.

A run that was reported as stored survives the process being killed and the power going, and
writers in several processes wait for one another. The rollback journal is used and not WAL:
it needs no second file while nothing is written, it can be read in a folder without write
permission, and it works on the network disks that hold the home folders of clusters
(https://sqlite.org/wal.html, section 1).
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.errors import MemlabError, UsageError
from memlab.roofline.peaks_document import peaks_document, peaks_from_document
from memlab.roofline.serialize import run_document, run_from_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memlab.device.peak_records import Peaks
    from memlab.roofline.run import Run

APPLICATION_ID = 0x6D6C6162
"""`PRAGMA application_id` of a memlab store: `mlab` in ASCII, which `file` shows."""

# The document holds the whole of it; the other columns are what is chosen by.
# AUTOINCREMENT never gives the number of a deleted run to another one.
_STEPS = (
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kernel TEXT NOT NULL,
        device TEXT NOT NULL COLLATE NOCASE,
        device_name TEXT NOT NULL COLLATE NOCASE,
        document TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE peaks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        device TEXT NOT NULL COLLATE NOCASE,
        device_name TEXT NOT NULL COLLATE NOCASE,
        document TEXT NOT NULL
    )
    """,
)
"""What makes a store of schema 1, of 2 and so on from one of the schema before: never changed,
only added to."""

SCHEMA_VERSION = len(_STEPS)
"""`PRAGMA user_version` of the tables above. An older file is brought up by the next write."""

_PEAKS_SINCE = 2

# A reason and what to do about it.
_READ_ONLY = ("it or its folder is read-only", "change the permissions")
_NOT_READABLE = ("permission denied", "change the permissions")

_LOCK_WAIT_S = 30.0
"""How long to wait for another process; one write takes milliseconds."""


def default_store_path() -> Path:
    """Where runs are kept unless someone says otherwise: the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("memlab", appauthor=False) / "runs.sqlite3"


class Store:
    """The runs in one file.

    Each call opens the file and closes it again, so a store holds nothing that must be closed
    and may be shared between threads. The file is made by the first `add`; until then the
    store reads as empty.

    Every method raises `UsageError`, in one line with the file and the next step, when the
    file is not a memlab store, was written by a newer memlab, is damaged or locked, or may not
    be read or written. The file is then as it was before.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        """Name the file, without touching it.

        Args:
            path: The file; None for the one `MEMLAB_STORE` names, else `default_store_path()`.
        """
        chosen = path or os.environ.get("MEMLAB_STORE")
        self._is_default = not chosen
        self.path = Path(chosen).expanduser() if chosen else default_store_path()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def check(self) -> None:
        """Refuse a store that could not take a run, before the work that makes one."""
        with self._reading():
            pass  # it is ours, or nothing yet
        with self._explained("write"):
            self._need_folder()
            # The folder too: the journal of a write is made there.
            for each in (self.path.parent, self.path):
                if each.exists() and not os.access(each, os.W_OK):
                    raise self._cannot("write", *_READ_ONLY)

    def add(self, run: Run) -> Run:
        """Store a run; when this returns, it is on the disk.

        Args:
            run: The run; an id that it may carry from another store is not kept.

        Returns:
            The same run with its id in this store.
        """
        document = json.dumps(run_document(replace(run, id=None)), allow_nan=False)
        device = run.measurement.device
        with self._writing() as connection:
            cursor = connection.execute(
                "INSERT INTO runs (kernel, device, device_name, document) VALUES (?, ?, ?, ?)",
                (run.measurement.kernel, device.key, device.name, document),
            )
        return replace(run, id=cursor.lastrowid)

    def add_peaks(self, peaks: Peaks) -> None:
        """Store measured peaks; when this returns, they are on the disk."""
        document = json.dumps(peaks_document(peaks), allow_nan=False)
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO peaks (device, device_name, document) VALUES (?, ?, ?)",
                (peaks.device.key, peaks.device.name, document),
            )

    def peaks(self, device: str, device_name: str) -> Peaks | None:
        """Read the newest peaks of a device; None where it has none.

        Args:
            device: Its key (`cuda:0`), which elsewhere may be another GPU's.
            device_name: So its name too.
        """
        with self._reading() as connection:
            if connection is None or _pragma(connection, "user_version") < _PEAKS_SINCE:
                return None
            row = connection.execute(
                "SELECT document FROM peaks WHERE device = ? AND device_name = ?"
                " ORDER BY id DESC LIMIT 1",
                (device, device_name),
            ).fetchone()
        if row is None:
            return None
        try:
            return peaks_from_document(json.loads(row[0]))
        except (MemlabError, ValueError) as error:
            raise UsageError(
                f"the peaks of {device} in {self.path} cannot be read ({error}): "
                "measure them again with 'memlab peaks', or choose another file with --store"
            ) from error

    def runs(
        self, device: str | None = None, kernel: str | None = None, limit: int | None = None
    ) -> list[Run]:
        """Read runs, oldest first.

        Args:
            device: Only those of this device: its key (`h200`, `cuda:0`) or its name.
            kernel: Only those of this kernel.
            limit: Only the newest so many, 1 or more.
        """
        if limit is not None and limit < 1:
            raise UsageError(f"the limit of runs must be 1 or more, got {limit}")
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                "SELECT id, document FROM runs"
                " WHERE (:device IS NULL OR device = :device OR device_name = :device)"
                " AND (:kernel IS NULL OR kernel = :kernel)"
                " ORDER BY id DESC LIMIT :limit",
                {"device": device, "kernel": kernel, "limit": -1 if limit is None else limit},
            ).fetchall()
        return [self._decode(*row) for row in reversed(rows)]

    def get(self, run_id: int) -> Run:
        """Read one run.

        Raises:
            UsageError: Also when there is no such run.
        """
        with self._reading() as connection:
            if connection is None or run_id not in _ids(connection):
                raise self._no_such_runs([run_id])
            query = "SELECT id, document FROM runs WHERE id = ?"
            row = connection.execute(query, (run_id,)).fetchone()
        return self._decode(*row)

    def delete(self, run_ids: Iterable[int]) -> None:
        """Delete runs: all of those given, or none.

        Raises:
            UsageError: Also when some of them do not exist; the message names these.
        """
        wanted = sorted(set(run_ids))
        if not self.path.exists():  # a deletion must not make an empty store
            raise self._no_such_runs(wanted)
        with self._writing() as connection:
            missing = set(wanted) - _ids(connection)
            if missing:
                raise self._no_such_runs(sorted(missing))
            connection.executemany("DELETE FROM runs WHERE id = ?", [(each,) for each in wanted])

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open the file for reading; None where there is no store yet, and none is made."""
        with self._explained("read"):
            if not self.path.exists():
                yield None
                return
            with closing(self._connect("rw")) as connection:
                # One transaction, so that all that is read is of one moment.
                connection.execute("BEGIN")
                yield connection if self._schema(connection) else None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open the file, made if need be, in a transaction that leaving without error commits."""
        with self._explained("write"):
            self._need_folder()
            with closing(self._connect("rwc")) as connection:
                # The lock comes before the look at the schema: of two processes that start
                # a store together, the second finds what the first has made.
                connection.execute("BEGIN IMMEDIATE")
                for step in _STEPS[self._schema(connection) :]:
                    connection.execute(step)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                yield connection
                connection.execute("COMMIT")
                # Where COMMIT was not reached, closing the connection rolls back.

    def _connect(self, mode: str) -> sqlite3.Connection:
        """Open the file. `rw` is right for reading too.

        SQLite falls back to read-only where it must; where it may write, it first undoes what
        a killed writer left half done.
        """
        # isolation_level=None: no transaction begins unless BEGIN says so, in any Python.
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_LOCK_WAIT_S,
            isolation_level=None,
        )
        # EXTRA is FULL and syncs the folder once the journal is gone, without which a commit
        # may be undone by a power cut (https://sqlite.org/pragma.html#pragma_synchronous).
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    def _schema(self, connection: sqlite3.Connection) -> int:
        """Give the version of our tables in the file; 0 where it holds nothing at all.

        Raises:
            UsageError: It holds something else, or a newer memlab's tables.
        """
        application_id = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        if application_id == version == _pragma(connection, "schema_version") == 0:
            return 0
        if application_id != APPLICATION_ID:
            raise self._not_a_store("it is another program's SQLite database")
        if version > SCHEMA_VERSION:
            raise UsageError(
                f"{self.path} was written by a newer memlab (schema {version}; this one knows up "
                f"to {SCHEMA_VERSION}): update memlab, or choose another file with --store"
            )
        return version

    def _need_folder(self) -> None:
        folder = self.path.parent
        if self._is_default:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            # A folder that someone named and that is not there is more likely a slip.
            raise UsageError(
                f"the store's folder {folder} does not exist: "
                f"create it with 'mkdir -p {folder}', or choose another file with --store"
            )

    def _decode(self, run_id: int, document: str) -> Run:
        try:
            return replace(run_from_document(json.loads(document)), id=run_id)
        except (MemlabError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"run {run_id} in {self.path} cannot be read ({error}): "
                f"delete it with 'memlab runs delete {run_id}'"
            ) from error

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        """Turn what SQLite and the system report into one line with the next step."""
        try:
            if self.path.is_dir():
                raise UsageError(
                    f"the store {self.path} is a folder: name a file, "
                    f"such as {self.path / 'runs.sqlite3'}"
                )
            if self.path.exists() and not self.path.is_file():
                raise self._not_a_store("it is not a regular file")
            yield
        except sqlite3.DatabaseError as error:
            raise self._explain(error, verb) from error
        except OSError as error:
            raise UsageError(
                f"cannot {verb} the store {self.path} ({error.strerror or error}): "
                "choose another file with --store"
            ) from error

    def _explain(self, error: sqlite3.DatabaseError, verb: str) -> UsageError:
        # The low byte is the kind of error (https://sqlite.org/rescode.html).
        # An error that Python found itself, such as text that is not UTF-8, has none.
        match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
            case sqlite3.SQLITE_NOTADB:
                return self._not_a_store("it is not an SQLite database")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                reason, remedy = _READ_ONLY if verb == "write" else _NOT_READABLE
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                reason = f"another process has held its lock for {_LOCK_WAIT_S:g} s"
                remedy = "try again when that one is done"
            case sqlite3.SQLITE_FULL:
                reason = "the disk is full"
                remedy = "free some space"
            case sqlite3.SQLITE_CORRUPT:
                reason = f"it is damaged: {error}"
                remedy = "restore it from a copy"
            case _:
                reason = str(error)
                remedy = "look to the disk it is on"
        return self._cannot(verb, reason, remedy)

    def _cannot(self, verb: str, reason: str, remedy: str) -> UsageError:
        return UsageError(
            f"cannot {verb} the store {self.path} ({reason}): "
            f"{remedy}, or choose another file with --store"
        )

    def _not_a_store(self, reason: str) -> UsageError:
        return UsageError(
            f"{self.path} is not a memlab store ({reason}): choose another file with --store"
        )

    def _no_such_runs(self, run_ids: list[int]) -> UsageError:
        names = ("run " if len(run_ids) == 1 else "runs ") + ", ".join(map(str, run_ids))
        return UsageError(f"{self.path} has no {names}: 'memlab runs' lists what it has")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _ids(connection: sqlite3.Connection) -> set[int]:
    return {run_id for (run_id,) in connection.execute("SELECT id FROM runs")}
