"""The output of commands: its format and its place.

A file is written whole or not at all, and replaces another only with `--overwrite`. A document that
cannot be written to its file is printed instead.
"""

from __future__ import annotations

import os
import secrets
import stat
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from memlab.cli.terminal_text import echo
from memlab.errors import Incomplete, MemlabWarning, UsageError
from memlab.roofline.store import kept
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from memlab.device.measurement import Coverage

Result = TypeVar("Result")

DEFAULT_FORMATS = {".json": "json", ".csv": "csv"}
"""The format that a file's extension stands for, by default."""


def chosen_format(
    as_json: bool, as_csv: bool, output: Path | None, formats: Mapping[str, str] = DEFAULT_FORMATS
) -> str:
    """Choose the format: that of the option, else of the file's extension, else the report.

    Args:
        as_json: Whether `--json` was given.
        as_csv: Whether `--csv` was given.
        output: The file to be written, if any.
        formats: Formats by extension.

    Returns:
        `json`, `csv`, one of the formats, or `report`.

    Raises:
        UsageError: Both options were given, the extension stands for another format than the
            option or for none, or the file is `-`.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv were both given: choose one")
    option = "json" if as_json else "csv" if as_csv else ""
    if output is None:
        return option or "report"
    _refuse_dash(output)
    by_name = (DEFAULT_FORMATS | dict(formats)).get(output.suffix.lower(), "")
    if option and by_name not in ("", option):
        raise UsageError(
            f"--{option} was given, and {output} is named as {by_name.upper()}: choose one"
        )
    if option or by_name in formats.values():
        return option or by_name
    *others, last = (f".{name}" for name in dict.fromkeys(formats.values()))
    extensions = " or ".join(filter(None, (", ".join(others), last)))
    if by_name:
        raise UsageError(
            f"this command writes no {by_name.upper()}, for {output}: use {extensions}"
        )
    options = " or ".join(f"--{name}" for name in ("json", "csv") if name in formats.values())
    raise UsageError(
        f"cannot tell the format of {output} from its extension: use {extensions}, or add {options}"
    )


def print_message(message: str) -> None:
    """Print a message on stderr, on one line; control characters are escaped."""
    with suppress(OSError):  # a closed stderr does not fail the command
        echo(f"memlab: {printable(message)}", err=True)


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
    """Print that a launch was stopped at the time limit, and how much of it had run."""
    if not coverage.timed_out or quiet:
        return
    if coverage.blocks_emulated == coverage.blocks_total:
        reached = "all blocks were counted, but not run again for the models of caches and time"
    else:
        reached = (
            f"{coverage.blocks_emulated:,} of {coverage.blocks_total:,} blocks ran and stand for "
            "the rest"
        )
    print_message(f"stopped at the time limit: {reached}; allow more with --timeout")


def partial_result(work: Callable[[], Result]) -> tuple[Result, int]:
    """Do the work of a command; where it is incomplete, print why.

    Args:
        work: Returns the result that the command shows.

    Returns:
        The result, which may be incomplete, and the exit code for after it is shown: 0, or the
        error's.
    """
    try:
        return work(), 0
    except Incomplete as error:
        print_message(f"error: {error}")
        result: Result = error.result
        return result, error.exit_code


def json_text(document: object) -> str:
    """Format a JSON document as all commands do, with a newline at its end."""
    import json

    return json.dumps(document, indent=2) + "\n"


def print_json(document: object) -> None:
    """Write a JSON document to stdout."""
    typer.echo(json_text(document), nl=False)


def deliver(text: str, output: Path | None, overwrite: bool, quiet: bool) -> None:
    """Write a document to a file, or to stdout where there is no file or it cannot be written.

    Args:
        text: The document, with a newline at its end.
        output: The file; None for stdout.
        overwrite: Whether an existing file may be overwritten.
        quiet: Whether to print no message about the file.

    Raises:
        UsageError: As `write_output`; the document is on stdout.
    """
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_output(output, text, overwrite)
    except UsageError:
        typer.echo(text, nl=False)  # the work behind it may have taken an hour
        raise
    if not quiet:
        print_message(f"wrote {output}")


def check_output(path: Path, overwrite: bool, option: str = "--output") -> None:
    """Refuse a file that `write_output` could not write, before the work that fills it.

    Args:
        path: The file to be written.
        overwrite: Whether an existing file may be overwritten.
        option: The option, or the argument, that names the file, for messages.

    Raises:
        UsageError: The folder is missing or read-only, a folder or a file is in the way, or the
            file is `-`.
    """
    try:
        _check_writable(path, overwrite, option)
    except OSError as error:
        raise _write_error(path, error, option) from error


def write_output(path: Path, data: bytes | str, overwrite: bool, option: str = "--output") -> None:
    """Write a file whole; if anything fails, it stays as it was.

    The data goes to a new file in the same folder, which then takes the name in one step; without
    `overwrite`, only if the name is still free. A link is followed with `overwrite` only. A pipe or
    a terminal (`/dev/stdout`) is written to directly.

    Args:
        path: The file to be written.
        data: Its content; text is written as UTF-8.
        overwrite: Whether an existing file may be overwritten.
        option: The option that names the file, for messages.

    Raises:
        UsageError: As `check_output`, or the disk is full.
    """
    # File names may hold bytes that are not UTF-8.
    content = data.encode(errors="backslashreplace") if isinstance(data, str) else data
    try:
        _check_writable(path, overwrite, option)
        if _is_special(path):
            path.write_bytes(content)
        elif overwrite:
            _write_atomically(path.resolve(), content, _replace_file)
        else:
            _write_atomically(path, content, _claim_free_name)
        kept.note_file(path)
    except FileExistsError as error:
        raise _file_exists_error(path, option) from error
    except OSError as error:
        raise _write_error(path, error, option) from error


def _check_writable(path: Path, overwrite: bool, option: str) -> None:
    _refuse_dash(path, option)
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it, such as {path / 'output'}")
    if not folder.is_dir():
        raise UsageError(
            f"the folder {folder} does not exist: "
            f"create it with 'mkdir -p {folder}', or {_another_file(option)}"
        )
    if _is_special(path):
        return
    if os.path.lexists(path) and not overwrite:  # true for a dangling link too
        raise _file_exists_error(path, option)
    if not os.access(path.resolve().parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"the folder {folder} is read-only: {_another_file(option)}, or change its permissions"
        )


def _refuse_dash(path: Path, option: str = "--output") -> None:
    """Refuse a file named `-`, which stands for stdout in other tools."""
    if str(path) == "-":
        raise UsageError(
            f"'-' is neither stdout nor a file here: leave {option} out, or name a file"
        )


def _is_special(path: Path) -> bool:
    """Tell whether this is a pipe or a device, which renaming a file over it would remove."""
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
    """Rename a file over another one, with that one's permissions."""
    if path.exists():
        part.chmod(stat.S_IMODE(path.stat().st_mode))
    part.replace(path)


def _claim_free_name(part: Path, path: Path) -> None:
    """Rename a file to a free name; of two writers at the same time only one succeeds.

    Raises:
        FileExistsError: The name is not free.
    """
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: an empty file reserves the name
        path.open("xb").close()
        try:
            part.replace(path)
        except BaseException:
            path.unlink()
            raise


def _file_exists_error(path: Path, option: str) -> UsageError:
    return UsageError(f"{path} exists: add --overwrite to replace it, or {_another_file(option)}")


def _write_error(path: Path, error: OSError, option: str) -> UsageError:
    return UsageError(f"cannot write {path} ({error.strerror or error}): {_another_file(option)}")


def _another_file(option: str) -> str:
    return "choose another file" + (f" with {option}" if option.startswith("-") else "")
