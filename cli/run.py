"""`memlab run KERNEL`: launch a kernel once and report what it did to memory."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from memlab.cli import options
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.device.measurement import Time
    from memlab.kernels.kernel import Kernel, Parameter
    from memlab.roofline.run import Run

EXIT_FINDING = 1

Format = Literal["report", "json", "csv"]
Counting = Literal["emulated", "ncu"]


def _seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if seed < 0:
        raise UsageError(f"seed must be a whole number, 0 or more, got {text!r}: use --seed 0")
    return seed


def _samples(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"samples must be a whole number, got {text!r}: use --samples 30"
        ) from None


def _timeout(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"timeout must be seconds, got {text!r}: use --timeout 60") from None


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
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            parser=_samples,
            metavar="N",
            help="Launches that a GPU times. "
            "[default: 30 and on, until the median is sure to 0.5%]",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=_timeout,
            metavar="SECONDS",
            help="Give up a launch on a GPU that takes longer. [default: 60]",
        ),
    ] = None,
    counters: Annotated[
        Counting,
        typer.Option("--counters", help="ncu: also count in hardware, with Nsight Compute."),
    ] = "emulated",
    cublas: Annotated[
        bool, typer.Option("--cublas", help="Also time cuBLAS on the same matrices, on a GPU.")
    ] = False,
) -> None:
    """Run one kernel, print or write the result, and leave with 1 if its output is wrong."""
    chosen = chosen_format(as_json, as_csv, output)
    if output is not None:
        from memlab.cli.output import check_output

        check_output(output, force)

    from memlab import lab
    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        hardware = None
        if counters == "ncu":
            hardware = _hardware_counters(name, parameters, device, seed, progress)
        library = _cublas_time(name, parameters, device, seed, progress) if cublas else {}
        result = lab.run(
            name,
            dict(parameters),
            device=device,
            seed=seed,
            store=store,
            keep=not no_store,
            progress=progress,
            counters_ncu=hardware,
            library_time=library,
            samples=samples,
            timeout_s=timeout,
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


def _hardware_counters(
    name: str,
    parameters: Mapping[str, int | str | None],
    device: str | None,
    seed: int,
    progress: Any,
) -> dict[str, float] | None:
    """Count with Nsight Compute; where that cannot be, say why, and the run goes on without."""
    from memlab import lab
    from memlab.device.ncu import ProfilerError

    try:
        return lab.hardware_counters(
            name, dict(parameters), device=device, seed=seed, progress=progress
        )
    except ProfilerError as error:
        typer.echo(f"memlab: no hardware counters: {error}", err=True)
        return None


def _cublas_time(
    name: str,
    parameters: Mapping[str, int | str | None],
    device: str | None,
    seed: int,
    progress: Any,
) -> "dict[str, Time]":
    """Time cuBLAS; where that cannot be, say why, and the run goes on without."""
    from memlab import lab
    from memlab.errors import DeviceError

    try:
        bar = lab.cublas(name, dict(parameters), device=device, seed=seed, progress=progress)
    except DeviceError as error:
        typer.echo(f"memlab: no cuBLAS: {error}", err=True)
        return {}
    return {"cublas": bar.time}


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


def kernel_group(work: Callable[..., None]) -> type[TyperGroup]:
    """Make a group of commands, one for each kernel of the catalog.

    Args:
        work: Called with the kernel's name, its parameters by name, and by keyword the options
            that it declares itself: those follow the kernel's own on the command line.
    """

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
            return _command(find(cmd_name), work)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Parse what stands before a kernel's name.

            Raises:
                UsageError: It is an option of kernels, and no kernel is named.
            """
            try:
                return super().parse_args(ctx, args)
            except typer.TyperException as error:
                option = getattr(error, "option_name", "")
                name = _kernel_with(option)
                if name is None:
                    raise
                raise UsageError(
                    f"{option} belongs to a kernel, and none stands before it: "
                    f"name one, as in '{ctx.command_path} {name} {option} ...'"
                ) from error

    return KernelGroup


def _kernel_with(option: str) -> str | None:
    """Name a kernel that has this option, the first that a lesson meets."""
    from memlab.kernels.catalog import CATALOG

    owners = (
        kernel.name
        for kernel in CATALOG.values()
        if option in {parameter.option for parameter in kernel.parameters}
    )
    return next(owners, None)


def _command(kernel: "Kernel", work: Callable[..., None]) -> Any:
    """Make the kernel's command: its own parameters first, then what every one takes."""

    def command(**given: Any) -> None:
        own = {parameter.name: given.pop(parameter.name) for parameter in kernel.parameters}
        work(kernel.name, own, **given)

    taken = {parameter.name for parameter in kernel.parameters}
    common = [
        each
        for each in inspect.signature(work).parameters.values()
        if each.kind is inspect.Parameter.KEYWORD_ONLY and each.name not in taken
    ]
    signature = inspect.Signature([*map(_option, kernel.parameters), *common])
    command.__signature__ = signature  # type: ignore[attr-defined]
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(kernel.name, help=f"{kernel.summary}.")(command)
    return typer.main.get_command(alone)


def _option(parameter: "Parameter") -> inspect.Parameter:
    """One of a kernel's parameters as an option, with its default and limits in the help."""
    choices = f"<{'|'.join(parameter.choices)}>"
    option = typer.Option(
        parameter.option,
        metavar=choices if parameter.choices else parameter.name[0].upper(),
        parser=lambda text: parameter.checked(_number(text)),
        help=f"{parameter.help}. [{parameter.range_label}; default: {parameter.default_label}]",
    )
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],  # for Typer; the parser gives what counts
    )


def _number(text: str) -> int | str:
    """Read a whole number; what is none is left for the parameter to reject in its own words."""
    try:
        return int(text)
    except ValueError:
        return text


run_app = typer.Typer(
    cls=kernel_group(run_kernel),
    invoke_without_command=True,
    rich_markup_mode=None,
    subcommand_metavar="KERNEL [OPTIONS]",
)


@run_app.callback()
def run(context: typer.Context) -> None:
    """Run a kernel and see what it does to memory."""
    if context.invoked_subcommand is None:
        raise UsageError("which kernel? 'memlab kernels' lists them; see 'memlab run --help'")
