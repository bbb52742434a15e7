"""docs/continuous-integration.md: its commands have the options that it gives them."""

import re

import pytest
from paths import REPOSITORY

from memlab.cli.app import main
from memlab.roofline.comparison.conditions import parse_condition

PAGE = (REPOSITORY / "docs" / "continuous-integration.md").read_text("utf-8")
COMMAND = re.compile(
    r"memlab ((?:baseline (?:save|check)|compare|run tiled)\b[^\n`#]*(?:\n +-[^\n]*)*)"
)


@pytest.mark.parametrize("line", sorted(set(COMMAND.findall(PAGE))))
def test_the_options_of_the_page_are_there(line, capsys):
    words = line.split()
    command = words[:2] if words[0] in ("baseline", "run") else words[:1]
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    options = {word.split("=")[0] for word in words if word.startswith("-")}
    missing = {option for option in options if not re.search(rf"{option}\b", text)}
    assert not missing


def test_the_conditions_of_the_page_are_conditions():
    table = PAGE.partition("| condition |")[2].partition("\n\n")[0]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    conditions = [text for row in rows for text in re.findall(r"`([^`]+)`", row.split("|")[1])]
    kinds = [parse_condition(text).kind for text in conditions]
    assert kinds == ["relative", "difference", "relative", "value", "value", "value"]
