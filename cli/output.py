"""What a command writes: in which format, and where.

Files are written whole or not at all, and never over another without `--force`. What cannot be
kept where it should be is printed all the same.
"""

from __future__ import annotations

import os
import secrets
import stat
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from memlab.errors import Incomplete, MemlabWarning, UsageError
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from memlab.device.measurement import Coverage

Result = TypeVar("Result")

DEFAULT_FORMATS = {".json": "json", ".csv": "csv"}
"""What a file's extension asks for, where a command has nothing more to give."""


def chosen_format(
    as_json: bool, as_csv: bool, output: Path | None, formats: Mapping[str, str] = DEFAULT_FORMATS
) -> str:
    """Decide what to write: the option, else the file's extension, else the report.

    Args:
        as_json: Whether `--json` was given.
        as_csv: Whether `--csv` was given.
        output: The file to be written, if any.
        formats: What the extensions ask for.

    Returns:
        `json`, `csv`, one of the formats, or `report`.

    Raises:
        UsageError: Both options were given, the extension asks for another format than the
            option, or for nothing known; or the file is `-`.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv were both given: choose one")
    option = "json" if as_json else "csv" if as_csv else ""
    if output is None:
        return option or "report"
    _refuse_dash(output)
    named = (DEFAULT_FORMATS | dict(formats)).get(output.suffix.lower(), "")
    if option and named not in ("", option):
        raise UsageError(
            f"--{option} was given, and {output} is named as {named.upper()}: choose one"
        )
    if option or named in formats.values():
        return option or named
    *others, last = (f".{each}" for each in dict.fromkeys(formats.values()))
    taken = " or ".join(filter(None, (", ".join(others), last)))
    if named:
        raise UsageError(f"no {named.upper()} is written here, for {output}: use {taken}")
    options = " or ".join(f"--{each}" for each in ("json", "csv") if each in formats.values())
    raise UsageError(
        f"cannot tell the format of {output} from its extension: use {taken}, or add {options}"
    )


def print_message(message: str) -> None:
    """Write a message on stderr, on one line whatever the names in it hold."""
    with suppress(OSError):  # that no one can be told is no fault of the work
        typer.echo(f"memlab: {printable(message)}", err=True)


@contextmanager
def warnings_as_messages() -> Iterator[None]:
    """Print memlab's own warnings as messages while the work lasts, others as Python does."""
    show = warnings.showwarning

    def show_message(
        message: Warning | str, category: type[Warning], *place: Any, **more: Any
    ) -> None:
        if issubclass(category, MemlabWarning):
            print_message(str(message))
        else:
            show(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show_message
        yield


def note_time_limit(coverage: Coverage, quiet: bool) -> None:
    """Say on stderr that a launch was stopped at the time limit, with how much of it had run."""
    if coverage.timed_out and not quiet:
        print_message(
            f"stopped at the time limit: {coverage.blocks_emulated:,} of "
            f"{coverage.blocks_total:,} blocks ran and stand for the rest; "
            "allow more with --timeout"
        )


def partial_result(work: Callable[[], Result]) -> tuple[Result, int]:
    """Do the work of a command; where it is incomplete, say why and give what there is.

    Args:
        work: Gives what the command shows.

    Returns:
        What it gave, and the exit code to leave with once that is shown: 0, or the error's.
    """
    try:
        return work(), 0
    except Incomplete as error:
        print_message(f"error: {error}")
        result: Result = error.result
        return result, error.exit_code


def json_text(document: object) -> str:
    """Write a JSON document as all commands do, its last line ended."""
    import json

    return json.dumps(document, indent=2) + "\n"


def print_json(document: object) -> None:
    """Write a JSON document to stdout."""
    typer.echo(json_text(document), nl=False)


def deliver(text: str, output: Path | None, force: bool, quiet: bool) -> None:
    """Write a document to a file, or to stdout where none was named or it cannot be written.

    Args:
        text: The document, with its last line ended.
        output: The file.
        force: Whether a file that exists may be overwritten.
        quiet: Whether to say nothing of it.

    Raises:
        UsageError: As `write_output`; stdout then has the document.
    """
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_output(output, text, force)
    except UsageError:
        typer.echo(text, nl=False)  # the work behind it may have taken an hour
        raise
    if not quiet:
        print_message(f"wrote {output}")


def check_output(path: Path, force: bool, option: str = "--output") -> None:
    """Refuse a file that `write_output` could not write, before the work that fills it.

    Args:
        path: The file to be written.
        force: Whether a file that exists may be overwritten.
        option: What the file was given with, for messages.

    Raises:
        UsageError: The folder is missing or read-only, a folder or a file is in the way, or the
            file is `-`.
    """
    try:
        _check_writable(path, force, option)
    except OSError as error:
        raise _write_error(path, error, option) from error


def write_output(path: Path, data: bytes | str, force: bool, option: str = "--output") -> None:
    """Write a file so that it is there whole or, if anything fails, is as it was before.

    The data goes to a new file in the same folder, which then takes the name in one step; without
    `force`, only if nobody has taken it meanwhile. A link is followed, with `force` alone; a pipe
    or a terminal (`/dev/stdout`) is written to as it is.

    Args:
        path: The file to be written.
        data: Its content; text is written as UTF-8.
        force: Whether a file that exists may be overwritten.
        option: What the file was given with, for messages.

    Raises:
        UsageError: As `check_output`, or the disk is full.
    """
    # Names of files may hold bytes that are no UTF-8.
    content = data.encode(errors="backslashreplace") if isinstance(data, str) else data
    try:
        _check_writable(path, force, option)
        if _is_special(path):
            path.write_bytes(content)
        elif force:
            _write_atomically(path.resolve(), content, _replace_file)
        else:
            _write_atomically(path, content, _claim_free_name)
    except FileExistsError as error:
        raise _file_exists_error(path, option) from error
    except OSError as error:
        raise _write_error(path, error, option) from error


def _check_writable(path: Path, force: bool, option: str) -> None:
    _refuse_dash(path, option)
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it, such as {path / 'output'}")
    if not folder.is_dir():
        raise UsageError(
            f"the folder {folder} does not exist: "
            f"create it with 'mkdir -p {folder}', or choose another file with {option}"
        )
    if _is_special(path):
        return
    if os.path.lexists(path) and not force:  # a link to nothing yet leads elsewhere too
        raise _file_exists_error(path, option)
    if not os.access(path.resolve().parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"the folder {folder} is read-only: choose another file with {option}, "
            "or change its permissions"
        )


def _refuse_dash(path: Path, option: str = "--output") -> None:
    """Write no file of this name to who means stdout, as elsewhere."""
    if str(path) == "-":
        raise UsageError(
            f"'-' is neither stdout nor a file here: leave {option} out, or name a file"
        )


def _is_special(path: Path) -> bool:
    """Whether this is a pipe or a device; renaming a file over one would remove it."""
    return path.exists() and not stat.S_ISREG(path.stat().st_mode)


def _write_atomically(path: Path, content: bytes, put: Callable[[Path, Path], None]) -> None:
    # A short name: the target's own may already be as long as a name can be.
    part = path.with_name(f".memlab-{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a power cut could leave the name with no content
        put(part, path)
    finally:
        part.unlink(missing_ok=True)


def _replace_file(part: Path, path: Path) -> None:
    """Give a file's name to another one."""
    if path.exists():
        part.chmod(stat.S_IMODE(path.stat().st_mode))
    part.replace(path)


def _claim_free_name(part: Path, path: Path) -> None:
    """Give a file a name that is free, as none of two writers at once can find it.

    Raises:
        FileExistsError: It is not free.
    """
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # not every file system has links; there an empty file keeps the name
        path.open("xb").close()
        try:
            part.replace(path)
        except BaseException:
            path.unlink()
            raise


def _file_exists_error(path: Path, option: str) -> UsageError:
    return UsageError(
        f"{path} exists: add --force to overwrite it, or choose another file with {option}"
    )


def _write_error(path: Path, error: OSError, option: str) -> UsageError:
    return UsageError(
        f"cannot write {path} ({error.strerror or error}): choose another file with {option}"
    )
