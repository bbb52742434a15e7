"""The `memlab` command: its sub-commands, and the conversion of errors to messages and codes."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from memlab.cli.completion import join_words_of_bash
from memlab.cli.parsing import Command, use_command_classes
from memlab.cli.terminal_text import echo, use_stand_ins
from memlab.errors import MemlabError, MemlabWarning, UsageError, suggest_nearest
from memlab.roofline.store import kept
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells return it."""

EXIT_BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader of stdout stopped early, and a finding may be in the lost part."""

STDOUT_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of writing to a stdout that is a file, or was closed by the caller."""

_OBJECTS_BETWEEN_COLLECTIONS = 10_000
"""New objects after which Python looks for garbage among them; without this, 700."""

PYTHON_FORMATWARNING = warnings.formatwarning

COMMANDS = {
    "devicequery": ("devicequery:devicequery", "Show a device's limits, clocks and peaks."),
    "run": ("run:run_app", "Run a kernel: verify it, count it, time it."),
    "analyze": ("analyze:analyze_app", "Count a kernel's memory accesses, line by line."),
    "check": ("check:check_app", "Find wrong accesses, races and barriers, without a GPU."),
    "trace": ("trace:trace_app", "Follow one thread: the elements it reads and stages."),
    "sass": ("sass:sass_app", "Show machine code beside PTX and source, with counts."),
    "sweep": ("sweep:sweep_app", "Run kernels at many points, and rank them."),
    "occupancy": (
        "occupancy:occupancy_app",
        "Show how many blocks fit on an SM, and the limit.",
    ),
    "roofline": ("roofline:roofline_app", "Draw the stored runs under the device's ceilings."),
    "report": ("report:report", "Write runs as one HTML page, with an interactive roofline."),
    "peaks": ("peaks:peaks", "Measure a GPU's ceilings and latencies."),
    "calibrate": ("calibrate:calibrate", "Measure a GPU's datasheet, to emulate it anywhere."),
    "init": ("init:init", "Write a memlab.toml for your own kernels."),
    "kernels": ("kernels:kernels", "List the kernels and their parameters."),
    "runs": ("runs:runs_app", "List, show, label, export and delete stored runs."),
    "compare": ("compare:compare", "Compare two runs: code, counters, times, lines."),
    "baseline": ("baseline:baseline_app", "Save what launches cost, and check it after changes."),
    "explain": ("explain:explain", "Explain a term, a counter or a kernel."),
    "lesson": ("reading.lesson:lesson", "Read the lessons, and run their commands as you read."),
    "doctor": ("doctor:doctor", "Show what works here, and what to do about the rest."),
    "help": ("reading.help:show_help", "Read about the environment, exit codes and arguments."),
}
"""The commands in the order of the help: their places, and their lines in it."""


class LazyGroup(TyperGroup):
    """The commands of `COMMANDS`, each imported when it is used, to keep the help fast."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command.

        Raises:
            UsageError: There is no such command; the message names the nearest.
        """
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None  # a word being completed is no error yet
            raise UsageError(f"unknown command {cmd_name!r}: {suggest_nearest(cmd_name, COMMANDS)}")
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        part = getattr(import_module(f"memlab.cli.commands.{module}"), attribute)
        if isinstance(part, typer.Typer):
            use_command_classes(part)
            command: Any = typer.main.get_group(part)
        else:
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cls=Command)(part)
            command = typer.main.get_command(single)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an interrupt tells what is kept."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _print_message(f"interrupted: {kept.kept_text()}")
            raise typer.Exit(EXIT_INTERRUPTED) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


# Rich's help pages and tracebacks take longer to import than everything else together.
app = typer.Typer(
    name="memlab",
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: memlab run tiled, then memlab roofline. No GPU is needed.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"memlab {version('memlab')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def memlab(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Show how well a CUDA kernel uses memory, and how close that brings it to the GPU's limits."""
    if context.invoked_subcommand is None:
        echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, print errors on stderr and return the exit code.

    Args:
        arguments: The words after `memlab`; None takes those of the process, which ends with the
            command.

    Returns:
        0 done, 1 a finding, 2 wrong usage, 3 device or back end not available, 130 interrupted,
        141 stdout closed by its reader.
    """
    if arguments is None:
        # Little of what a command makes is garbage before its end. Looking for it takes 40 ms of a
        # run of 1.2 s, and 100 ms more at the end, when Python looks at all objects.
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        atexit.register(_leave_objects)
    _open_closed_streams()
    warnings.formatwarning = _format_warning
    use_stand_ins()
    join_words_of_bash()
    kept.forget()
    try:
        code = app(args=arguments, prog_name="memlab", standalone_mode=False)
        sys.stdout.flush()
    except MemlabError as error:
        return _print_error(str(error), error.exit_code, log=getattr(error, "log", ""))
    except typer.TyperException as error:
        return _print_error(_with_help_hint(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:  # Typer and Rich turn it into SystemExit(1)
        if not _is_broken_pipe(error):
            raise
        _abandon_stdout()
        return EXIT_BROKEN_PIPE
    except MemoryError as error:  # more than the free memory is refused earlier
        return _print_error(_out_of_memory_message(error), UsageError.exit_code)
    except OSError as error:
        if error.errno not in STDOUT_ERRNOS or error.filename is not None:
            raise
        _abandon_stdout()
        return _print_error(f"cannot write to stdout ({error.strerror})", UsageError.exit_code)
    return code if isinstance(code, int) else 0


def _leave_objects() -> None:
    """Let the process end without looking for garbage.

    Objects of extension modules that Python files bring, such as Triton, are looked for: some of
    these modules report what is left of theirs as leaked (nanobind).
    """
    if "triton" not in sys.modules:
        gc.freeze()


def _open_closed_streams() -> None:
    """Open the standard streams that the caller has closed, as in `memlab run tiled >&-`.

    What would go to such a stdout is lost, so writing to it fails: the null device is opened for
    reading there. Messages to a closed stderr are lost without a word.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - for good
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115


def _format_warning(
    message: Warning | str, category: type[Warning], *where: Any, **line: Any
) -> str:
    """Format a warning: memlab's own as a message on one line, others as Python does."""
    if issubclass(category, MemlabWarning):
        return f"memlab: {printable(str(message))}\n"
    return PYTHON_FORMATWARNING(message, category, *where, **line)


def _out_of_memory_message(error: BaseException) -> str:
    """Write the message; memory that is still held is freed first, since a message takes some."""
    earlier, cause = "", error.__context__
    traceback.clear_frames(error.__traceback__)
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        earlier, cause = str(cause) or earlier, cause.__context__
    reason = str(error) or earlier
    return f"memory ran out{f' ({reason})' if reason else ''}: use smaller sizes"


def _is_broken_pipe(error: BaseException | None) -> bool:
    """Tell whether an error comes from a stdout whose reader has stopped."""
    while error is not None and not isinstance(error, BrokenPipeError):
        error = error.__context__
    return error is not None


def _abandon_stdout() -> None:
    """Keep Python's last flush of stdout from failing, as the documentation of `signal` advises."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(message: str, exit_code: int, log: str = "") -> int:
    """Print an error on one line; a compiler's log keeps its lines."""
    lines = message.expandtabs().split("\n") if log else [message]
    _print_message("error: " + "\n".join(map(printable, lines)))
    return exit_code


def _print_message(message: str) -> None:
    with suppress(OSError):  # without stderr, the exit code alone tells it
        echo(f"memlab: {message}", err=True)


def _with_help_hint(error: typer.TyperException) -> str:
    """Put Typer's message on one line, and point to the help of the command."""
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message}; see '{context.command_path} --help'"
