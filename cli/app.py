"""The `memlab` command: its parts, and the one place where an error becomes a line and a code."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from memlab.cli.devicequery import devicequery
from memlab.cli.kernels import kernels
from memlab.cli.roofline import roofline
from memlab.cli.run import run_app
from memlab.cli.runs import runs_app
from memlab.errors import MemlabError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells give it."""

ORDER = ("devicequery", "run", "roofline", "kernels", "runs")
"""The commands as a newcomer meets them."""


class OrderedGroup(TyperGroup):
    """The commands in `ORDER`; Typer would put the groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands as the help lists them."""
        return sorted(super().list_commands(ctx), key=ORDER.index)


# Rich's help pages and tracebacks take longer to import than everything else together.
app = typer.Typer(
    name="memlab",
    cls=OrderedGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: memlab run tiled, then memlab roofline. No GPU is needed.",
)
app.command()(devicequery)
app.add_typer(run_app, name="run")
app.command()(roofline)
app.command()(kernels)
app.add_typer(runs_app, name="runs")


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
        0 done, 1 a finding, 2 wrong usage, 3 device or back end not available, 130 interrupted.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot spell µ gets a ?
    try:
        code = app(args=arguments, prog_name="memlab", standalone_mode=False)
        sys.stdout.flush()
    except MemlabError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(_with_help_hint(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left. Python flushes stdout once more on its way out, and
        # that must not fail aloud ("Note on SIGPIPE" in the documentation of `signal`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def _fail(message: str, exit_code: int) -> int:
    typer.echo(f"memlab: error: {message}", err=True)
    return exit_code


def _with_help_hint(error: typer.TyperException) -> str:
    """Put what Typer has to say on one line, and say where the accepted options are."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message}; see '{context.command_path} --help'"
