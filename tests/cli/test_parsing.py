"""Options are read as Typer reads them, and without Pydantic where that is not needed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from typer.core import TyperOption
from typer.main import get_command

from memlab.cli.app import COMMANDS, app
from memlab.cli.parsing import Option

TEXTS = ["", "7", "-1", "1.5", "word", "0x10", " 7", "emulated", "1e3", "None"]


def options() -> list[tuple[Any, Any]]:
    """Every option of every command, with a context."""
    group: Any = get_command(app)
    found, waiting = [], [(group, group.context_class(group, info_name="memlab"))]
    while waiting:
        command, context = waiting.pop()
        found += [(each, context) for each in command.get_params(context)]
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                if below is not None:
                    waiting.append((below, below.context_class(below, parent=context)))
    return [(each, context) for each, context in found if isinstance(each, TyperOption)]


def outcome(read: Any, *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except Exception as error:
        return type(error), str(error)


def test_options_are_read_as_typer_reads_them() -> None:
    every = options()
    assert len(every) > 10 * len(COMMANDS)
    assert {type(each) for each, _ in every} == {Option}
    for option, context in every:
        option.callback = None  # of --version, which ends the process
        for value in (None, option.default, *TEXTS):
            if option.multiple and value is not None:
                value = [value]
            theirs = outcome(TyperOption.process_value, option, context, value)
            assert outcome(option.process_value, context, value) == theirs, (option.name, value)


@pytest.mark.parametrize("words", [["kernels"], ["run", "tiled", "--width", "x"], ["--version"]])
def test_usual_options_need_no_pydantic(words: list[str]) -> None:
    code = f"import sys; from memlab.cli.app import main; main({words}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "pydantic" not in done.stdout.split()
