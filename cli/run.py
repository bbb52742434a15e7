"""`memlab run KERNEL`: launch a kernel once and report what it did to memory."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from memlab.cli import options
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.kernels.kernel import Kernel, Parameter
    from memlab.roofline.run import Run

EXIT_FINDING = 1

Format = Literal["report", "json", "csv"]


class KernelGroup(TyperGroup):
    """The kernels of the catalog as sub-commands, made when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the kernels, in the catalog's order."""
        from memlab.kernels.catalog import CATALOG

        return list(CATALOG)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Make a kernel's command.

        Raises:
            UsageError: There is no such kernel; the message gives the nearest names.
        """
        from memlab.kernels.catalog import CATALOG, find

        if ctx.resilient_parsing and cmd_name not in CATALOG:
            return None  # a word being completed is no error yet
        return _command(find(cmd_name))


run_app = typer.Typer(
    cls=KernelGroup,
    invoke_without_command=True,
    rich_markup_mode=None,
    subcommand_metavar="KERNEL [OPTIONS]",
)


@run_app.callback()
def run(context: typer.Context) -> None:
    """Run a kernel and see what it does to memory."""
    if context.invoked_subcommand is None:
        from memlab.kernels.catalog import CATALOG

        raise UsageError(f"which kernel? {', '.join(CATALOG)}; see 'memlab run --help'")


def _seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if seed < 0:
        raise UsageError(f"seed must be a whole number, 0 or more, got {text!r}: use --seed 0")
    return seed


def run_kernel(
    name: str,
    parameters: Mapping[str, int | None],
    *,
    device: options.Device = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
    output: options.Output = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Do not keep this run.")] = False,
    seed: Annotated[
        int, typer.Option(parser=_seed, metavar="S", help="Seed of the random inputs.")
    ] = 0,
) -> None:
    """Run one kernel, print or write the result, and leave with 1 if its output is wrong."""
    chosen = chosen_format(as_json, as_csv, output)
    if output is not None:
        from memlab.cli.output import check_output

        check_output(output, force)

    from memlab import lab
    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        result = lab.run(
            name,
            dict(parameters),
            device=device,
            seed=seed,
            store=store,
            keep=not no_store,
            progress=progress,
        )
    _deliver(result, chosen, output, force, quiet)
    verification = result.measurement.verification
    if verification.status == "failed":
        typer.echo(
            f"memlab: verification failed: relative error {verification.relative_error:.3g}, "
            f"rounding explains {verification.tolerance:.3g}",
            err=True,
        )
        raise typer.Exit(EXIT_FINDING)


def chosen_format(as_json: bool, as_csv: bool, output: Path | None) -> Format:
    """Decide what to write: the option, else the file's extension, else the report.

    Raises:
        UsageError: Both formats were asked for, or the extension names neither.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv were both given: choose one")
    if as_json or as_csv:
        return "json" if as_json else "csv"
    if output is None:
        return "report"
    formats: dict[str, Format] = {".json": "json", ".csv": "csv"}
    if output.suffix.lower() not in formats:
        raise UsageError(
            f"cannot tell the format of {output} from its extension: "
            "use .json or .csv, or add --json or --csv"
        )
    return formats[output.suffix.lower()]


def _deliver(run: "Run", chosen: Format, output: Path | None, force: bool, quiet: bool) -> None:
    if chosen == "report":
        from memlab.cli.render import console, run_report

        console().print(run_report(run))
        return

    import json

    from memlab.roofline.serialize import run_document, runs_csv

    text = runs_csv([run]) if chosen == "csv" else json.dumps(run_document(run), indent=2) + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return

    from memlab.cli.output import write_output

    write_output(output, text, force)
    if not quiet:
        typer.echo(f"memlab: wrote {output}", err=True)


def _command(kernel: "Kernel") -> Any:
    """Make the kernel's command: its own parameters first, then what every run takes."""

    def command(**given: Any) -> None:
        own = {parameter.name: given.pop(parameter.name) for parameter in kernel.parameters}
        run_kernel(kernel.name, own, **given)

    common = [
        each
        for each in inspect.signature(run_kernel).parameters.values()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    signature = inspect.Signature([*map(_option, kernel.parameters), *common])
    command.__signature__ = signature  # type: ignore[attr-defined]
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(kernel.name, help=f"{kernel.summary}.")(command)
    return typer.main.get_command(alone)


def _option(parameter: "Parameter") -> inspect.Parameter:
    """One of a kernel's parameters as an option, with its default and limits in the help."""
    option = typer.Option(
        f"--{parameter.name}",
        metavar=parameter.name[0].upper(),
        parser=lambda text: parameter.checked(_number(text)),
        help=f"{parameter.help}. [{parameter.range_label}; default: {parameter.default_label}]",
    )
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[int | None, option],
    )


def _number(text: str) -> int | str:
    """Read a whole number; what is none is left for the parameter to reject in its own words."""
    try:
        return int(text)
    except ValueError:
        return text
