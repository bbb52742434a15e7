"""`memlab help`: topics that concern all commands, the help of one, and the schema of documents."""

from functools import cache
from importlib import resources
from typing import Annotated, Any

import typer

from memlab.cli.terminal_text import echo
from memlab.errors import UsageError, suggest_nearest

SCHEMA_TOPIC = "schema"
"""The topic that is the JSON Schema of a run's document."""


@cache
def topics() -> dict[str, str]:
    """Return the topics and their texts in Markdown, by name, in alphabetical order."""
    folder = resources.files("memlab.cli") / "topics"
    return {
        file.name.removesuffix(".md"): file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".md")
    }


def _complete_topic(incomplete: str) -> list[str]:
    from memlab.cli.app import COMMANDS

    return [
        name for name in (*topics(), SCHEMA_TOPIC, *COMMANDS) if name.startswith(incomplete.lower())
    ]


def show_help(
    context: typer.Context,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC|COMMAND]",
            help="What to read; alone, list the topics.",
            autocompletion=_complete_topic,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Read about the environment, exit codes, arguments, devices and documents."""
    from memlab.cli.app import COMMANDS

    texts = topics()
    if topic is None:
        _list_topics(texts)
    elif topic == SCHEMA_TOPIC:
        from memlab.cli.output import print_json
        from memlab.roofline.documents.schema import run_schema

        print_json(run_schema())
    elif topic in texts:
        _print_markdown(texts[topic])
    elif topic in COMMANDS:
        root = context.find_root()
        group: Any = root.command
        group.get_command(root, topic).make_context(topic, ["--help"], parent=root)
    else:
        known = [*texts, SCHEMA_TOPIC, *COMMANDS]
        raise UsageError(f"there is no help on {topic!r}: {suggest_nearest(topic, known)}")


def _list_topics(texts: dict[str, str]) -> None:
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in texts.items()}
    titles[SCHEMA_TOPIC] = "JSON Schema of the document of a run"
    width = max(map(len, titles))
    echo("Topics, for 'memlab help TOPIC':")
    for name, title in titles.items():
        echo(f"  {name:<{width}}  {title}")
    echo("'memlab help COMMAND' is 'memlab COMMAND --help'.")
    echo("'memlab explain' explains terms, 'memlab lesson' teaches.")


def _print_markdown(text: str) -> None:
    from rich.markdown import Markdown

    from memlab.roofline.reports.parts import console

    console().print(Markdown(text))
