"""The file that the store is: where it is, opening it so that nothing is lost, and what may fail.

The rollback journal is used and not WAL: it needs no second file while nothing is written, it can
be read in a folder without write permission, and it works on the network disks that hold the home
folders of clusters (https://sqlite.org/wal.html, section 1).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.errors import UsageError
from memlab.roofline.units import elide_middle

if TYPE_CHECKING:
    from collections.abc import Iterator

APPLICATION_ID = 0x6D6C6162
"""`PRAGMA application_id` of a memlab store: `mlab` in ASCII, which `file` shows."""

# The document holds the whole of it; the other columns are what is chosen by.
# AUTOINCREMENT never gives the number of a deleted run to another one.
_MIGRATIONS = (
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

SCHEMA_VERSION = len(_MIGRATIONS)
"""`PRAGMA user_version` of the tables above. An older file is brought up by the next write."""

PEAKS_SCHEMA_VERSION = 2
"""The first schema with a table of peaks."""

# A reason and what to do about it.
_READ_ONLY = ("it or its folder is read-only", "change the permissions")
_DAMAGED = ("it is damaged", "restore it from a copy")
_NOT_READABLE = ("permission denied", "change the permissions")

_LOCK_WAIT_S = 30.0
"""How long to wait for another process; one write takes milliseconds."""


def default_store_path() -> Path:
    """Where runs are kept unless someone says otherwise: the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("memlab", appauthor=False) / "runs.sqlite3"


class StoreFile:
    """One SQLite file, opened for each call and closed again.

    Every method raises `UsageError`, in one line with the file and the next step, when the
    file is not a memlab store, was written by a newer memlab, is damaged or locked, or may not
    be read or written. The file is then as it was before.
    """

    def __init__(self, path: Path | str | None) -> None:
        """Name the file, without touching it: see `Store`."""
        chosen = path or os.environ.get("MEMLAB_STORE")
        self._is_default = not chosen
        # os.path's leaves the ~ of a user that there is none of; Path's raises RuntimeError.
        self.path = Path(os.path.expanduser(chosen)) if chosen else default_store_path()  # noqa: PTH111

    def check(self) -> None:
        """Refuse a store that could not take a run, before the work that makes one."""
        with self.open_for_reading():
            pass  # it is ours, or nothing yet
        with self._translate_errors("write"):
            self._ensure_folder()
            # The folder too: the journal of a write is made there.
            for each in (self.path.parent, self.path):
                if each.exists() and not os.access(each, os.W_OK):
                    raise self._access_error("write", *_READ_ONLY)

    @contextmanager
    def open_for_reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open the file for reading; None where there is no store yet, and none is made."""
        with self._translate_errors("read"):
            if not self.path.exists():
                yield None
                return
            with closing(self._connect("rw")) as connection:
                # One transaction, so that all that is read is of one moment.
                connection.execute("BEGIN")
                yield connection if self.schema(connection) else None

    @contextmanager
    def open_for_writing(self) -> Iterator[sqlite3.Connection]:
        """Open the file, made if need be, in a transaction that leaving without error commits."""
        with self._translate_errors("write"):
            self._ensure_folder()
            with closing(self._connect("rwc")) as connection:
                # The lock comes before the look at the schema: of two processes that start
                # a store together, the second finds what the first has made.
                connection.execute("BEGIN IMMEDIATE")
                for step in _MIGRATIONS[self.schema(connection) :]:
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
        # For a file that a stranger may have made (https://sqlite.org/security.html).
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        # Damaged text is then found where it is read as JSON, and hides no other run.
        connection.text_factory = bytes
        return connection

    def schema(self, connection: sqlite3.Connection) -> int:
        """Give the version of our tables in the file; 0 where it holds nothing at all.

        Raises:
            UsageError: It holds something else, or a newer memlab's tables.
        """
        application_id = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        if application_id == version == _pragma(connection, "schema_version") == 0:
            return 0
        if application_id != APPLICATION_ID:
            raise self._not_a_store_error("it is another program's SQLite database")
        if version > SCHEMA_VERSION:
            raise UsageError(
                f"{self.path} was written by a newer memlab (schema {version}; this one knows up "
                f"to {SCHEMA_VERSION}): update memlab, or choose another file with --store"
            )
        # A view under a table's name may never end, and a trigger take back what was stored.
        foreign = _schema_definitions(connection) ^ _expected_definitions(version)
        if version < 1 or foreign:
            named = ", ".join(sorted(f"{kind} {name}" for kind, name, _ in foreign))
            raise self._not_a_store_error(f"not as memlab makes one: {elide_middle(named, 200)}")
        return version

    def _ensure_folder(self) -> None:
        folder = self.path.parent
        if self._is_default:
            _make_folder(folder)
        elif not folder.is_dir():
            # A folder that someone named and that is not there is more likely a slip.
            raise UsageError(
                f"the store's folder {folder} does not exist: "
                f"create it with 'mkdir -p {folder}', or choose another file with --store"
            )

    @contextmanager
    def _translate_errors(self, verb: str) -> Iterator[None]:
        """Turn what SQLite and the system report into one line with the next step."""
        try:
            if "\0" in str(self.path):  # SQLite would take what stands before it
                raise UsageError("a file's name has no NUL: choose another file with --store")
            if self.path.is_dir():
                raise UsageError(
                    f"the store {self.path} is a folder: name a file, "
                    f"such as {self.path / 'runs.sqlite3'}"
                )
            if self.path.exists() and not self.path.is_file():
                raise self._not_a_store_error("it is not a regular file")
            yield
        except sqlite3.DatabaseError as error:
            raise self._sqlite_error(error, verb) from error
        except UnicodeDecodeError as error:  # SQLite quotes what is damaged, Python decodes that
            raise self._access_error(verb, *_DAMAGED) from error
        except OSError as error:
            raise UsageError(
                f"cannot {verb} the store {self.path} ({error.strerror or error}): "
                "choose another file with --store"
            ) from error

    def _sqlite_error(self, error: sqlite3.DatabaseError, verb: str) -> UsageError:
        # The low byte is the kind of error (https://sqlite.org/rescode.html).
        # An error that Python found itself has none.
        match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
            case sqlite3.SQLITE_NOTADB:
                return self._not_a_store_error("it is not an SQLite database")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                reason, remedy = _READ_ONLY if verb == "write" else _NOT_READABLE
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                reason = f"another process has held its lock for {_LOCK_WAIT_S:g} s"
                remedy = "try again when that one is done"
            case sqlite3.SQLITE_FULL:
                reason = "the disk is full"
                remedy = "free some space"
            case sqlite3.SQLITE_IOERR:  # a quota that is used up looks like this too
                reason = str(error)
                remedy = "look to the disk it is on and to your quota"
            case sqlite3.SQLITE_CORRUPT:
                reason, remedy = f"{_DAMAGED[0]}: {error}", _DAMAGED[1]
            case _:
                reason = str(error)
                remedy = "look to the disk it is on"
        return self._access_error(verb, reason, remedy)

    def _access_error(self, verb: str, reason: str, remedy: str) -> UsageError:
        return UsageError(
            f"cannot {verb} the store {self.path} ({reason}): "
            f"{remedy}, or choose another file with --store"
        )

    def _not_a_store_error(self, reason: str) -> UsageError:
        return UsageError(
            f"{self.path} is not a memlab store ({reason}): choose another file with --store"
        )


def _make_folder(folder: Path) -> None:
    """Make a folder that a power cut does not take away, with what is in it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    with suppress(OSError):  # not every file system can do this, and nothing else could be done
        parent = os.open(folder.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def _schema_definitions(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Give the kind, name and SQL of all that a database declares, but for its statistics."""
    query = "SELECT CAST(type AS TEXT), CAST(name AS TEXT), CAST(sql AS TEXT) FROM sqlite_schema"
    rows = (
        [(each or b"").decode(errors="replace") for each in row]
        for row in connection.execute(query)
    )
    return {
        (kind, name, " ".join(sql.split()))
        for kind, name, sql in rows
        if not (kind == "table" and name.startswith("sqlite_stat"))  # what ANALYZE makes
    }


@cache
def _expected_definitions(version: int) -> set[tuple[str, str, str]]:
    """Give what our own steps declare, up to a version of the tables."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.text_factory = bytes
        for step in _MIGRATIONS[: max(version, 0)]:
            connection.execute(step)
        return _schema_definitions(connection)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
