"""Commands that refuse an option given twice where it takes one value.

Typer would take the last value, and a list such as `--tile 8 --tile 16` would lose its others.
"""

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from memlab.errors import UsageError


class Command(TyperCommand):
    """A command whose options of one value are given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the command.

        Raises:
            UsageError: An option of one value is given twice.
        """
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of commands whose own options of one value are given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the group's name, up to a command; errors as for `Command`."""
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)


def use_command_classes(app: typer.Typer) -> None:
    """Make an app's commands `Command`s and the app a `Group`, unless they have other classes."""
    for command in app.registered_commands:
        if command.cls is TyperCommand:
            command.cls = Command
    if not isinstance(app.info.cls, type):  # Typer's default, which stands for a `TyperGroup`
        app.info.cls = Group


def _refuse_repeated_options(command: Any, ctx: Any, args: list[str]) -> None:
    if ctx.resilient_parsing:
        return  # words that are being completed
    *_, order = command.make_parser(ctx).parse_args(args=list(args))
    for parameter, times in Counter(order).items():
        takes_one = parameter.param_type_name == "option" and not parameter.multiple
        if times > 1 and takes_one and not (parameter.is_flag or parameter.count):
            option = max(parameter.opts, key=len)
            is_run = ctx.command_path.startswith("memlab run ")
            more = "'memlab sweep' takes lists" if is_run else f"see '{ctx.command_path} --help'"
            raise UsageError(
                f"{option} is given {times} times, and it takes one value: give it once; {more}"
            )
