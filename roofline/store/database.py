"""The store's SQLite file: its path, its tables, safe writes, and errors in plain words.

memlab uses the rollback journal, not WAL: it needs no second file while nothing is written, it can
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

# The document holds the whole record; queries choose by the other columns.
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
    """
    CREATE TABLE sweeps (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        created_at TEXT NOT NULL,
        finished INTEGER NOT NULL,
        definition TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE sweep_points (
        sweep INTEGER NOT NULL REFERENCES sweeps (id),
        point TEXT NOT NULL,
        run INTEGER,
        outcome TEXT NOT NULL,
        PRIMARY KEY (sweep, point)
    )
    """,
)
"""The steps from each schema to the next; steps are only added, never changed."""

SCHEMA_VERSION = len(_MIGRATIONS)
"""`PRAGMA user_version` of the tables above. The next write migrates an older file."""

PEAKS_SCHEMA_VERSION = 2
"""The first schema with a table of peaks."""

SWEEPS_SCHEMA_VERSION = 4
"""The first schema with the tables of sweeps."""

_LOCK_WAIT_S = 30.0
"""How long to wait for another process, seconds; one write takes milliseconds."""

# A reason and its remedy.
_READ_ONLY = ("it or its folder is read-only", "change the permissions")
_DAMAGED = ("it is damaged", "restore it from a copy")


def default_store_path() -> Path:
    """The store's path if the user names none: in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("memlab", appauthor=False) / "runs.sqlite3"


class StoreFile:
    """One SQLite file, opened for each call and closed again; see `Store` for its errors."""

    def __init__(self, path: Path | str | None) -> None:
        """Name the file, without touching it: see `Store`."""
        chosen = path or os.environ.get("MEMLAB_STORE")
        self._is_default = not chosen
        # os.path leaves the ~ of an unknown user as it is; Path raises RuntimeError.
        self.path = Path(os.path.expanduser(chosen)) if chosen else default_store_path()  # noqa: PTH111

    def check(self) -> None:
        """Refuse a store that could not take a run, before the work that makes one."""
        with self.open_for_reading():
            pass  # it is a store, or does not exist yet
        with self._translate_errors("write"):
            self._ensure_folder()
            # A write makes its journal in the folder.
            for path in (self.path.parent, self.path):
                if path.exists() and not os.access(path, os.W_OK):
                    raise self._access_error("write", *_READ_ONLY)

    @contextmanager
    def open_for_reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open the file for reading; None where there is no store yet (it is not created)."""
        with self._translate_errors("read"):
            if not self.path.exists():
                yield None
                return
            with closing(self._connect("rw")) as connection:
                # One transaction, so that all reads see the same state.
                connection.execute("BEGIN")
                yield connection if self.schema(connection) else None

    @contextmanager
    def open_for_writing(self) -> Iterator[sqlite3.Connection]:
        """Open the file, created if needed, in a transaction that commits if no error occurs."""
        with self._translate_errors("write"):
            self._ensure_folder()
            with closing(self._connect("rwc")) as connection:
                # Lock before reading the schema: of two processes that create a store together,
                # the second then finds the tables of the first.
                connection.execute("BEGIN IMMEDIATE")
                for step in _MIGRATIONS[self.schema(connection) :]:
                    connection.execute(step)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                yield connection
                connection.execute("COMMIT")
                # Without COMMIT, closing the connection rolls back.

    def _connect(self, mode: str) -> sqlite3.Connection:
        """Open the file. Readers use `rw` too.

        SQLite then undoes what a killed writer left half done, and falls back to read-only where
        it may not write.
        """
        # isolation_level=None: only BEGIN starts a transaction, in any version of Python.
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_LOCK_WAIT_S,
            isolation_level=None,
        )
        # EXTRA also syncs the folder once the journal is deleted; with FULL a power cut may
        # undo a commit (https://sqlite.org/pragma.html#pragma_synchronous).
        connection.execute("PRAGMA synchronous = EXTRA")
        # The file may come from anyone (https://sqlite.org/security.html).
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        # Damaged text then fails where it is read as JSON, and hides no other run.
        connection.text_factory = bytes
        return connection

    def schema(self, connection: sqlite3.Connection) -> int:
        """Give the version of memlab's tables in the file; 0 for an empty file.

        Raises:
            UsageError: The file holds something else, or a newer memlab's tables.
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
        if version < 1:
            raise self._not_a_store_error(f"memlab makes no schema {version}")
        # A view under a table's name may never end; a trigger may delete what was stored.
        foreign = _schema_definitions(connection) ^ _expected_definitions(version)
        if foreign:
            named = ", ".join(sorted(f"{kind} {name}" for kind, name, _ in foreign))
            raise self._not_a_store_error(f"not as memlab makes one: {elide_middle(named, 200)}")
        return version

    def _ensure_folder(self) -> None:
        folder = self.path.parent
        if self._is_default:
            _make_folder(folder)
        elif not folder.is_dir():
            # A folder that the user named and that does not exist is probably a typing error.
            raise UsageError(
                f"the store's folder {folder} does not exist: "
                f"create it with 'mkdir -p {folder}', or choose another file with --store"
            )

    @contextmanager
    def _translate_errors(self, verb: str) -> Iterator[None]:
        """Turn errors of SQLite and the system into one line with the next step."""
        try:
            if "\0" in str(self.path):  # SQLite would cut the name there
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
        except UnicodeDecodeError as error:  # from decoding a message that quotes damaged bytes
            raise self._access_error(verb, *_DAMAGED) from error
        except OSError as error:
            raise UsageError(
                f"cannot {verb} the store {self.path} ({error.strerror or error}): "
                "choose another file with --store"
            ) from error

    def _sqlite_error(self, error: sqlite3.DatabaseError, verb: str) -> UsageError:
        # The low byte is the primary result code (https://sqlite.org/rescode.html); errors that
        # Python found itself have none.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            return self._not_a_store_error("it is not an SQLite database")
        denied = _READ_ONLY if verb == "write" else ("permission denied", _READ_ONLY[1])
        locked = f"another process has held its lock for {_LOCK_WAIT_S:g} s"
        faults = {
            **dict.fromkeys(
                (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM), denied
            ),
            **dict.fromkeys(
                (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED),
                (locked, "try again when that process is done"),
            ),
            sqlite3.SQLITE_FULL: ("the disk is full", "free some space"),
            sqlite3.SQLITE_IOERR: (str(error), "check its disk and your quota"),
            sqlite3.SQLITE_CORRUPT: (f"{_DAMAGED[0]}: {error}", _DAMAGED[1]),
        }
        return self._access_error(verb, *faults.get(code, (str(error), "check its disk")))

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
    """Make a folder, and its parents, so that they survive a power cut."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    with suppress(OSError):  # not every file system can do this
        parent = os.open(folder.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def _schema_definitions(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Give the kind, name and SQL of every declaration in a database, without its statistics."""
    query = "SELECT CAST(type AS TEXT), CAST(name AS TEXT), CAST(sql AS TEXT) FROM sqlite_schema"
    declared = set()
    for row in connection.execute(query):
        kind, name, sql = ((value or b"").decode(errors="replace") for value in row)
        if not (kind == "table" and name.startswith("sqlite_stat")):  # from ANALYZE
            declared.add((kind, name, " ".join(sql.split())))
    return declared


@cache
def _expected_definitions(version: int) -> set[tuple[str, str, str]]:
    """Give the declarations of a store of this version."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.text_factory = bytes
        for step in _MIGRATIONS[:version]:
            connection.execute(step)
        return _schema_definitions(connection)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
