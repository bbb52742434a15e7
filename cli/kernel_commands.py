"""The kernels of the catalog as sub-commands: what `memlab run`, `analyze`, `trace` … share."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.kernels.kernel import Kernel, Parameter

EXIT_FINDING = 1
"""What a command leaves with whose kernel wrote a wrong result."""


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
