"""The store of runs and of measured peaks: one SQLite file.

A run that was reported as stored survives a killed process and a power cut, and writers in several
processes wait for one another. A record that cannot be stored or read does not take the others
with it: the error carries them (`Incomplete`).
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.errors import Incomplete, UsageError
from memlab.roofline.documents.runs import run_document, run_from_document
from memlab.roofline.store import kept
from memlab.roofline.store.database import PEAKS_SCHEMA_VERSION, StoreFile
from memlab.roofline.store.run_filter import RunFilter, labels_in, matches_any

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeVar

    from memlab.device.gpu.peaks.records import Peaks
    from memlab.device.measurement import DeviceSummary
    from memlab.roofline.run import Run

    Record = TypeVar("Record")

ALL_RUNS = RunFilter()

_ONE_DOCUMENT = "SELECT document FROM runs WHERE id = ?"

_MAX_IDS_LISTED = 10
"""The most runs that a message names."""


class Store:
    """The runs and peaks in one file.

    Each call opens the file and closes it again, so a store needs no closing and may be shared
    between threads. The first `add` creates the file; until then the store reads as empty.

    Every method raises `UsageError`, in one line with the file and the next step, when the
    file is not a memlab store, was written by a newer memlab, is damaged or locked, or may not
    be read or written. The file is then unchanged.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        """Name the file, without touching it.

        Args:
            path: The file; None for the one `MEMLAB_STORE` names, else `default_store_path()`.
        """
        self._file = StoreFile(path)
        self.path = self._file.path

    @property
    def file(self) -> StoreFile:
        """The SQLite file."""
        return self._file

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def check(self) -> None:
        """Refuse a store that could not take a run, before the work that makes one."""
        self._file.check()

    def add(self, run: Run) -> Run:
        """Store a run; when this returns, it is on the disk.

        Args:
            run: The run; its id, if it has one from another store, is not kept.

        Returns:
            The same run with its id in this store.

        Raises:
            Incomplete: It cannot be stored; carries the run.
        """
        try:
            return self.add_all([run])[0]
        except Incomplete as error:
            raise Incomplete(str(error), run) from error

    def add_all(self, runs: Sequence[Run]) -> list[Run]:
        """Store all runs, or none if one cannot be stored.

        Args:
            runs: As for `add`.

        Returns:
            The same runs with their ids in this store.

        Raises:
            Incomplete: They cannot be stored; carries the runs.
        """
        insert = "INSERT INTO runs (kernel, device, device_name, document) VALUES (?, ?, ?, ?)"
        try:
            rows = [run_columns(run) for run in runs]
            with self._file.open_for_writing() as connection:
                ids = [connection.execute(insert, row).lastrowid for row in rows]
        except UsageError as error:
            what = "the run is" if len(runs) == 1 else f"{len(runs)} runs are"
            raise Incomplete(f"{what} not stored: {error}", list(runs)) from error
        kept.note_runs([run_id for run_id in ids if run_id is not None])
        return [replace(run, id=run_id) for run, run_id in zip(runs, ids, strict=True)]

    def add_peaks(self, peaks: Peaks) -> None:
        """Store measured peaks; when this returns, they are on the disk.

        Raises:
            Incomplete: They cannot be stored; carries the peaks.
        """
        from memlab.roofline.documents.peaks import peaks_document, peaks_from_document

        try:
            document = _verified_json(peaks_document(peaks), peaks_from_document)
            with self._file.open_for_writing() as connection:
                connection.execute(
                    "INSERT INTO peaks (device, device_name, document) VALUES (?, ?, ?)",
                    (peaks.device.key, peaks.device.name, document),
                )
        except UsageError as error:
            raise Incomplete(f"the peaks are not stored: {error}", peaks) from error

    def peaks(self, device: DeviceSummary) -> Peaks | None:
        """Read the newest peaks of a device (see `same_device`); None where it has none."""
        from memlab.roofline.documents.peaks import peaks_from_document

        with self._file.open_for_reading() as connection:
            if connection is None or self._file.schema(connection) < PEAKS_SCHEMA_VERSION:
                return None
            rows = connection.execute(
                "SELECT device, document FROM peaks WHERE device_name = ? ORDER BY id DESC",
                (device.name,),
            ).fetchall()
        for key, document in rows:
            try:
                peaks = _from_json(document, peaks_from_document)
            except UsageError as error:
                if key.decode(errors="replace").lower() != device.key:
                    continue  # probably another device's
                raise UsageError(
                    f"the peaks of {device.key} in {self.path} cannot be read ({error}): "
                    "measure them again with 'memlab peaks', or choose another file with --store"
                ) from error
            if same_device(peaks.device, device):
                return peaks
        return None

    def runs(self, chosen: RunFilter = ALL_RUNS) -> list[Run]:
        """Read the runs that are meant, oldest first.

        Raises:
            Incomplete: Some are damaged or were written by a newer memlab; carries the others.
        """
        runs: list[Run] = []
        unreadable: list[int] = []
        reason = ""
        for run_id, document in self._rows(chosen):
            if len(runs) == chosen.last:
                break
            try:
                if chosen.accepts(document):
                    runs.append(replace(_from_json(document, run_from_document), id=run_id))
            except UsageError as error:
                unreadable.append(run_id)
                reason = reason or str(error)
        runs.reverse()
        if unreadable:
            raise Incomplete(self._unreadable_text(unreadable[::-1], reason), runs)
        return runs

    def ids(self, chosen: RunFilter = ALL_RUNS) -> list[int]:
        """Give the ids of the runs that are meant, oldest first.

        Unreadable runs are included where the device and the kernel alone decide.
        """
        ids: list[int] = []
        for run_id, document in self._rows(chosen):
            if len(ids) == chosen.last:
                break
            with suppress(UsageError):
                if chosen.accepts(document):
                    ids.append(run_id)
        return ids[::-1]

    def kernels(self) -> list[tuple[int, str]]:
        """Give the ids and kernels of all runs, newest first, without reading their documents."""
        with self._file.open_for_reading() as connection:
            if connection is None:
                return []
            rows = connection.execute("SELECT id, kernel FROM runs ORDER BY id DESC").fetchall()
        return [(run_id, kernel.decode(errors="replace")) for run_id, kernel in rows]

    def labels(self) -> set[str]:
        """Give the labels and the names of sweeps of all runs that can be read."""
        names: set[str] = set()
        for _, document in self._rows(ALL_RUNS):
            with suppress(ValueError, AttributeError, RecursionError):
                names |= labels_in(json.loads(document))
        return names

    def get(self, run_id: int) -> Run:
        """Read one run.

        Raises:
            UsageError: Also when there is no such run.
        """
        with self._file.open_for_reading() as connection:
            if connection is None or run_id not in _ids(connection):
                raise self._no_such_runs_error([run_id])
            (document,) = connection.execute(_ONE_DOCUMENT, (run_id,)).fetchone()
        try:
            return replace(_from_json(document, run_from_document), id=run_id)
        except UsageError as error:
            raise UsageError(self._unreadable_text([run_id], str(error))) from error

    def delete(self, run_ids: Iterable[int]) -> None:
        """Delete runs: all of those given, or none.

        Raises:
            UsageError: Also when some of them do not exist; the message names these.
        """
        wanted = sorted(set(run_ids))
        if not self.path.exists():  # a deletion must not create an empty store
            raise self._no_such_runs_error(wanted)
        with self._file.open_for_writing() as connection:
            missing = set(wanted) - _ids(connection)
            if missing:
                raise self._no_such_runs_error(sorted(missing))
            rows = [(run_id,) for run_id in wanted]
            connection.executemany("DELETE FROM runs WHERE id = ?", rows)

    def annotate(self, run_id: int, *, label: str | None, note: str | None) -> Run:
        """Change the label or the note of a run; None leaves one as it is.

        Returns:
            The run with its new label and note.

        Raises:
            UsageError: Also when there is no such run, or it cannot be read.
        """
        changes = {"label": label, "note": note}
        self.get(run_id)  # which does not create a missing store
        with self._file.open_for_writing() as connection:
            row = connection.execute(_ONE_DOCUMENT, (run_id,)).fetchone()
            if row is None:  # deleted meanwhile
                raise self._no_such_runs_error([run_id])
            # The document itself is changed: a newer memlab's may hold more than a `Run`.
            document = json.loads(row[0])
            document["identity"] = document.get("identity", {}) | {
                name: text for name, text in changes.items() if text is not None
            }
            text = _verified_json(document, run_from_document)
            connection.execute("UPDATE runs SET document = ? WHERE id = ?", (text, run_id))
            return replace(_from_json(text, run_from_document), id=run_id)

    def _rows(self, chosen: RunFilter) -> list[tuple[int, bytes]]:
        """Read the ids and documents of the runs of a device and of kernels, newest first."""
        with self._file.open_for_reading() as connection:
            if connection is None:
                return []
            # All at once: decoding takes longer than reading, and must hold up no writer.
            rows = connection.execute(
                "SELECT id, kernel, document FROM runs"
                " WHERE (:device IS NULL OR device = :device OR device_name = :device)"
                " ORDER BY id DESC",
                {"device": chosen.device and _sqlite_text(chosen.device)},
            ).fetchall()
        wanted = tuple(map(_sqlite_text, chosen.kernels))
        return [
            (run_id, document)
            for run_id, kernel, document in rows
            if not wanted or matches_any(kernel.decode(errors="replace"), wanted)
        ]

    def _unreadable_text(self, run_ids: list[int], reason: str) -> str:
        delete = "memlab runs delete " + " ".join(map(str, run_ids[:_MAX_IDS_LISTED]))
        return (
            f"{_run_ids_text(run_ids)} in {self.path} cannot be read ({reason}): "
            f"update memlab if a newer one wrote that, else '{delete}'"
        )

    def _no_such_runs_error(self, run_ids: list[int]) -> UsageError:
        return UsageError(
            f"{self.path} has no {_run_ids_text(run_ids)}: 'memlab runs' lists what it has"
        )


def same_device(first: DeviceSummary, second: DeviceSummary) -> bool:
    """Whether two records are of one device.

    The UUID of a GPU decides where both records have one: the key (`cuda:0`) means another GPU in
    another machine or under another `CUDA_VISIBLE_DEVICES`. Otherwise key and name decide.
    """
    if first.uuid and second.uuid:
        return first.uuid == second.uuid
    return (first.key, first.name) == (second.key, second.name)


def _run_ids_text(run_ids: list[int]) -> str:
    more = f" and {len(run_ids) - _MAX_IDS_LISTED} more" if len(run_ids) > _MAX_IDS_LISTED else ""
    ids = ", ".join(map(str, run_ids[:_MAX_IDS_LISTED]))
    return ("run " if len(run_ids) == 1 else "runs ") + ids + more


def run_columns(run: Run) -> tuple[str, str, str, str]:
    """Give the columns of a run, without its id."""
    device = run.measurement.device
    document = _verified_json(run_document(replace(run, id=None)), run_from_document)
    kernel, key, name = map(_sqlite_text, (run.measurement.kernel, device.key, device.name))
    return kernel, key, name, document


def _verified_json(document: Mapping[str, Any], read: Callable[[Any], object]) -> str:
    """Write a document as JSON that can be read again.

    Raises:
        UsageError: It could not be read again; a run reported as stored would be lost.
    """
    text = json.dumps(document, allow_nan=False)
    try:
        _from_json(text, read)
    except UsageError as error:
        raise UsageError(f"{error}: keep it in a file with --output") from error
    return text


def _from_json(document: str | bytes, read: Callable[[Any], Record]) -> Record:
    """Read a stored document; every fault is a `UsageError`."""
    try:
        return read(json.loads(document))
    except (ValueError, TypeError, RecursionError) as error:  # from json: not text, or not JSON
        raise UsageError(str(error)) from error


def _sqlite_text(name: str) -> str:
    """Spell a name for SQLite, which refuses the bytes of file names that are not UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def _ids(connection: sqlite3.Connection) -> set[int]:
    return {run_id for (run_id,) in connection.execute("SELECT id FROM runs")}
