"""The kernels of `memlab sweep`: one or several, whose options take lists of values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memlab.cli import user_kernels
from memlab.cli.kernel_commands import (
    common_options,
    kernel_group,
    single_command,
    unknown_kernel_error,
)
from memlab.errors import UsageError
from memlab.text import printable

if TYPE_CHECKING:
    from memlab.kernels.kernel import Parameter

Work = Callable[..., None]


def sweep_kernels_app(work: Work, alone: Callable[..., None]) -> typer.Typer:
    """Make the command.

    Args:
        work: Called with the kernels, by name or as user kernels, with their options by name, and
            by keyword with the options that it declares.
        alone: Called without a kernel, and before one; its docstring is the help.
    """

    class SweepGroup(kernel_group(work)):  # type: ignore[misc]
        """Kernels as sub-commands, several of them joined."""

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Take all words before the first option as kernels."""
            first = next((i for i, word in enumerate(args) if word.startswith("-")), len(args))
            from memlab.kernels.user.expressions import split_list

            names = [name for word in args[:first] for name in split_list(word) if name]
            if not names:
                return super().resolve_command(ctx, args)
            command = _sweep_command(names, work)
            return printable(",".join(names)), command, args[first:]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """Make the command of one kernel, for help and completion."""
            try:
                return _sweep_command([cmd_name], work)
            except UsageError:
                if ctx.resilient_parsing:
                    return None
                raise

    app = typer.Typer(
        cls=SweepGroup,
        invoke_without_command=True,
        rich_markup_mode=None,
        subcommand_metavar="KERNEL[,KERNEL...] [OPTIONS]",
    )
    app.callback()(alone)
    return app


def _sweep_command(names: Sequence[str], work: Work) -> Any:
    """Make the command that sweeps some kernels."""
    from memlab.kernels.catalog import CATALOG

    unknown = [name for name in names if name not in CATALOG]
    if not unknown:
        return _catalog_command(names, work)
    kernels = []
    for name in names:
        kernel = user_kernels.lookup_user_kernel(name)
        if kernel is None and name not in CATALOG:
            raise unknown_kernel_error(name)
        kernels.append(kernel or name)
    return _user_command(names, kernels, work)


def _catalog_command(names: Sequence[str], work: Work) -> Any:
    from memlab.kernels.catalog import CATALOG

    parameters = {
        parameter.name: parameter for name in names for parameter in CATALOG[name].parameters
    }

    def command(**values: Any) -> None:
        chosen = {name: _merged(values.pop(name)) for name in parameters}
        work(names, chosen, **values)

    common = [option for option in common_options(work) if option.name not in parameters]
    options = [*map(_values_option, parameters.values()), *common]
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    summary = CATALOG[names[0]].summary if len(names) == 1 else f"Sweep {', '.join(names)}"
    summary += ". VALUES are lists and ranges: 8,16,32 or 512:4096:x2 or 32:128:+32."
    return single_command(",".join(names), summary, command)


def _user_command(names: Sequence[str], kernels: Sequence[Any], work: Work) -> Any:
    def command(**values: Any) -> None:
        chosen = {
            parameter.name: values.pop(parameter.name)
            for parameter in user_kernels.LAUNCH_PARAMETERS
        }
        restrict = chosen.pop("restrict")
        work(kernels, user_kernels.launch_options(**chosen), restrict=restrict, **values)

    options = [
        *user_kernels.LAUNCH_PARAMETERS,
        *user_kernels.without_launch_spellings(common_options(work)),
    ]
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    summary = (
        f"Your own {'kernel' if len(names) == 1 else 'kernels'}: {printable(', '.join(names))}. "
        "The values of --set and -D may be lists: N=1M,4M or B=64:1024:x2."
    )
    return single_command(printable(",".join(names)), summary, command)


def _merged(values: list[str] | None) -> str | None:
    """Join the lists of an option that is given several times."""
    return ",".join(values) if values else None


def _values_option(parameter: Parameter) -> inspect.Parameter:
    """Make the option of a parameter, which takes a list."""
    option = typer.Option(
        parameter.option,
        metavar="VALUES",
        help=f"{parameter.help}. [{parameter.range_label}; default: {parameter.default_label}]",
    )
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[list[str] | None, option],
    )
