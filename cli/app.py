"""The `memlab` command: its parts, and the one place where an error becomes a line and a code."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from memlab.errors import MemlabError, MemlabWarning, UsageError, suggest_nearest
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells give it."""

EXIT_BROKEN_PIPE = 141
"""128 + SIGPIPE: who read stdout left before its end, and what was found may be in what is lost."""

DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing to a stdout that is a file can meet."""

PYTHON_FORMATWARNING = warnings.formatwarning

COMMANDS = {
    "devicequery": ("devicequery:devicequery", "Show what a device has: limits, clocks, peaks."),
    "run": ("run:run_app", "Run a kernel: verify it, count it, time it."),
    "analyze": ("analyze:analyze_app", "Say what a kernel asks of memory, line by line."),
    "check": ("check:check_app", "Find wrong accesses, races and barriers, with no GPU."),
    "trace": ("trace:trace_app", "Follow one thread: what it reads and stages."),
    "occupancy": ("occupancy:occupancy_app", "Show what limits the blocks an SM holds."),
    "roofline": ("roofline:roofline_app", "Draw the recorded runs under the device's roofs."),
    "peaks": ("peaks:peaks", "Measure a GPU's ceilings and latencies."),
    "init": ("init:init", "Write a memlab.toml for kernels of your own."),
    "kernels": ("kernels:kernels", "List the kernels and their parameters."),
    "runs": ("runs:runs_app", "List, show, export and delete stored runs."),
    "explain": ("explain:explain", "Explain a term, a counter or a kernel."),
    "doctor": ("doctor:doctor", "Say what works here, and what to do about the rest."),
}
"""The commands as a newcomer meets them: where each lives, and its line in the help."""


class LazyGroup(TyperGroup):
    """The commands of `COMMANDS`, each imported when it is used: the help must not wait."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands as the help lists them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command.

        Raises:
            UsageError: There is none of this name; the message gives the nearest ones.
        """
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:
                return None  # a word being completed is no error yet
            raise UsageError(f"unknown command {cmd_name!r}: {suggest_nearest(cmd_name, COMMANDS)}")
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        found = getattr(import_module(f"memlab.cli.commands.{module}"), attribute)
        if isinstance(found, typer.Typer):
            command: Any = typer.main.get_group(found)
        else:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command()(found)
            command = typer.main.get_command(alone)
        command.name = cmd_name
        return command

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
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, print errors on stderr and give the exit code.

    Args:
        arguments: The words after `memlab`; by default those that the process was given.

    Returns:
        0 done, 1 a finding, 2 wrong usage, 3 device or back end not available, 130 interrupted,
        141 stdout closed by its reader.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us: `memlab run tiled >&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - for good
    warnings.formatwarning = _format_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot spell µ gets a ?
    try:
        code = app(args=arguments, prog_name="memlab", standalone_mode=False)
        sys.stdout.flush()
    except MemlabError as error:
        return _print_error(str(error), error.exit_code, log=getattr(error, "log", ""))
    except typer.TyperException as error:
        return _print_error(_with_help_hint(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:  # Typer and Rich make the first the second, 1
        if not _is_broken_pipe(error):
            raise
        _abandon_stdout()
        return EXIT_BROKEN_PIPE
    except MemoryError as error:  # a limit of this process: more than is free is refused before
        return _print_error(_out_of_memory_message(error), UsageError.exit_code)
    except OSError as error:
        if error.errno not in DISK_ERRNOS or error.filename is not None:
            raise
        _abandon_stdout()
        return _print_error(f"cannot write to stdout ({error.strerror})", UsageError.exit_code)
    return code if isinstance(code, int) else 0


def _format_warning(
    message: Warning | str, category: type[Warning], *where: Any, **line: Any
) -> str:
    """Write a warning: ours on one line like all else that is said, others as Python does."""
    if issubclass(category, MemlabWarning):
        return f"memlab: {printable(str(message))}\n"
    return PYTHON_FORMATWARNING(message, category, *where, **line)


def _out_of_memory_message(error: BaseException) -> str:
    """What to say; what is still held is let go first, since even a line takes memory."""
    said, cause = "", error.__context__
    traceback.clear_frames(error.__traceback__)
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        said, cause = str(cause) or said, cause.__context__
    reason = str(error) or said
    return f"memory ran out{f' ({reason})' if reason else ''}: use smaller sizes"


def _is_broken_pipe(error: BaseException | None) -> bool:
    """Whether it comes of a stdout whose reader has left."""
    while error is not None and not isinstance(error, BrokenPipeError):
        error = error.__context__
    return error is not None


def _abandon_stdout() -> None:
    """Keep Python's last flush of stdout from failing aloud, as `signal`'s notes advise."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(message: str, exit_code: int, log: str = "") -> int:
    """Print an error: on one line, but for a compiler's log, which keeps its own."""
    lines = message.expandtabs().split("\n") if log else [message]
    with suppress(OSError):  # where stderr cannot be written to, the code says it
        typer.echo("memlab: error: " + "\n".join(map(printable, lines)), err=True)
    return exit_code


def _with_help_hint(error: typer.TyperException) -> str:
    """Put what Typer has to say on one line, and say where the accepted options are."""
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message}; see '{context.command_path} --help'"
