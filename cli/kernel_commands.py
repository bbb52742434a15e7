"""Kernels as sub-commands of `memlab run`, `trace` …: catalog kernels and user kernels."""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from memlab.cli import user_kernels
from memlab.cli.completion import complete_file_kernel, without_completed_part
from memlab.cli.parsing import Command, Group
from memlab.errors import UsageError, suggest_nearest
from memlab.text import printable

if TYPE_CHECKING:
    from memlab.kernels.kernel import Kernel, Parameter
    from memlab.kernels.user.kernel import UserKernel

EXIT_FINDING = 1
"""Exit code of a command whose kernel wrote a wrong result."""


def kernel_app(work: Callable[..., None], example: str, summary: str) -> typer.Typer:
    """Make a command that takes a kernel.

    Args:
        work: Called with the kernel's name and its parameters by name, or with a `UserKernel` and
            no parameters; and by keyword with the options that it declares, which follow the
            kernel's on the command line. With `all_kernels` among them it takes a sequence of
            `UserKernel`s.
        example: A whole command line, for the message where no kernel is named.
        summary: The command in one sentence.
    """

    def alone(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            raise UsageError(
                f"which kernel? for example '{example}'; see '{context.command_path} --help'"
            )

    alone.__doc__ = summary
    return _make_app(work, alone, "KERNEL [OPTIONS]")


def optional_kernel_app(work: Callable[..., None], alone: Callable[..., None]) -> typer.Typer:
    """Make a command that takes a kernel, or none.

    Args:
        work: As for `kernel_app`.
        alone: Called without a kernel, and before one; its docstring is the help.
    """
    return _make_app(work, alone, "[KERNEL [OPTIONS]]")


def _make_app(work: Callable[..., None], alone: Callable[..., None], metavar: str) -> typer.Typer:
    app = typer.Typer(
        cls=kernel_group(work),
        invoke_without_command=True,
        rich_markup_mode=None,
        subcommand_metavar=metavar,
    )
    app.callback()(alone)
    return app


def kernel_group(work: Callable[..., None]) -> type[TyperGroup]:
    """Make a group of commands, one for each catalog kernel and for any user kernel."""

    class KernelGroup(Group):
        """Kernels as sub-commands, made when they are used."""

        kernels_in_files: Sequence[str] = ()  # those that complete a word

        def list_commands(self, ctx: Any) -> list[str]:
            """List the kernels of the catalog, in its order, then those in `memlab.toml`."""
            from memlab.kernels.catalog import CATALOG

            return [*CATALOG, *user_kernels.project_kernel_names(), *self.kernels_in_files]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """Make a kernel's command.

            Raises:
                UsageError: There is no such kernel; the message gives the nearest names.
            """
            from memlab.kernels.catalog import CATALOG

            if cmd_name in CATALOG:
                return _catalog_kernel_command(CATALOG[cmd_name], work)
            try:
                kernel = user_kernels.lookup_user_kernel(cmd_name)
                if kernel is None:
                    raise unknown_kernel_error(cmd_name)
            except UsageError:
                if ctx.resilient_parsing:
                    return None  # a word being completed is no error yet
                raise
            return _user_kernel_command(kernel, work)

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            """Complete a kernel: of the catalog, of `memlab.toml`, or in a file."""
            self.kernels_in_files = complete_file_kernel(incomplete)
            found = super().shell_complete(ctx, incomplete)
            for item in found:
                item.value = without_completed_part(item.value, incomplete)
            return found

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Find a command; its help shows the name as it was typed."""
            name, command, rest = super().resolve_command(ctx, args)
            return name if name is None else printable(name), command, rest

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """Write the list of kernels, then the names of user kernels."""
            super().format_commands(ctx, formatter)
            with formatter.section("Your own kernels"):
                help_command = f"{ctx.command_path} {user_kernels.KERNEL_PLACEHOLDER} --help"
                formatter.write_dl(
                    [
                        (
                            user_kernels.KERNEL_PLACEHOLDER,
                            f"A kernel in a file; '{help_command}' shows its options.",
                        ),
                        ("NAME", "One in ./memlab.toml, which 'memlab init FILE.cu' writes."),
                    ]
                )

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Parse the words before a kernel's name.

            Raises:
                UsageError: One is an option, which belongs after the kernel's name.
            """
            try:
                return super().parse_args(ctx, args)
            except typer.TyperException as error:
                option = getattr(error, "option_name", "")
                if option in {
                    spelling
                    for parameter in common_options(work)
                    for spelling in user_kernels.option_spellings(parameter)
                }:
                    raise UsageError(
                        f"{option} stands before the kernel, and options come after it: "
                        f"write '{ctx.command_path} KERNEL {option} ...'"
                    ) from error
                name = _kernel_with(option)
                if name is None:
                    raise
                raise UsageError(
                    f"{option} belongs to a kernel, and none stands before it: "
                    f"name one, as in '{ctx.command_path} {name} {option} ...'"
                ) from error

    return KernelGroup


def unknown_kernel_error(name: str) -> UsageError:
    """Make the error of an unknown kernel; it gives the nearest names."""
    from memlab.kernels.catalog import CATALOG

    listing = f"'memlab kernels' lists all; your own is {user_kernels.KERNEL_PLACEHOLDER}"
    return UsageError(
        f"unknown kernel {name!r}: "
        f"{suggest_nearest(name, [*CATALOG, *user_kernels.project_kernel_names()], listing)}"
    )


def _kernel_with(option: str) -> str | None:
    """Return the first kernel of the catalog that has this option; None where none has."""
    from memlab.kernels.catalog import CATALOG

    if option in user_kernels.LAUNCH_SPELLINGS:
        return user_kernels.KERNEL_PLACEHOLDER
    owners = (
        kernel.name
        for kernel in CATALOG.values()
        if option in {parameter.option for parameter in kernel.parameters}
    )
    return next(owners, None)


def _user_kernel_command(kernel: "UserKernel", work: Callable[..., None]) -> Any:
    """Make the command of a user kernel: its launch options, then the command's options."""

    def command(**values: Any) -> None:
        chosen = user_kernels.with_launch_options(kernel, values)
        device, quiet = values.get("device"), values.get("quiet", False)
        if values.get("all_kernels"):
            work(user_kernels.launched_kernels(chosen, device), {}, **values)
        else:
            work(user_kernels.with_file_launch(chosen, device, quiet), {}, **values)

    signature = inspect.Signature(
        [
            *user_kernels.LAUNCH_PARAMETERS,
            *user_kernels.without_launch_spellings(common_options(work)),
        ]
    )
    command.__signature__ = signature  # type: ignore[attr-defined]
    place = printable(f"{kernel.entry or 'the kernel'} in {kernel.source}")
    return single_command(printable(kernel.target), f"Your own kernel: {place}.", command)


def common_options(work: Callable[..., None]) -> list[inspect.Parameter]:
    """Return the options that a command declares for every kernel."""
    return [
        parameter
        for parameter in inspect.signature(work).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]


def single_command(name: str, summary: str, command: Callable[..., None]) -> Any:
    """Make a command of a function, with its name and one line of help."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command, help=summary)(command)
    return typer.main.get_command(alone)


def _catalog_kernel_command(kernel: "Kernel", work: Callable[..., None]) -> Any:
    """Make the command of a catalog kernel: its parameters, then the command's options."""

    def command(**values: Any) -> None:
        chosen = {parameter.name: values.pop(parameter.name) for parameter in kernel.parameters}
        work(kernel.name, chosen, **values)

    taken = {parameter.name for parameter in kernel.parameters}
    common = [option for option in common_options(work) if option.name not in taken]
    signature = inspect.Signature([*map(_parameter_option, kernel.parameters), *common])
    command.__signature__ = signature  # type: ignore[attr-defined]
    summary = f"{kernel.summary}."
    if any(not parameter.choices for parameter in kernel.parameters):
        summary += " Numbers take the suffixes K, M and G, 1024 and its powers: 4M."
    return single_command(kernel.name, summary, command)


def _parameter_option(parameter: "Parameter") -> inspect.Parameter:
    """Make an option of a kernel's parameter, with its default and limits in the help."""
    choices = f"<{'|'.join(parameter.choices)}>"
    option = typer.Option(
        parameter.option,
        metavar=choices if parameter.choices else parameter.name[0].upper(),
        parser=parameter.checked,
        help=f"{parameter.help}. [{parameter.range_label}; default: {parameter.default_label}]",
    )
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],  # for Typer; the parser decides
    )
