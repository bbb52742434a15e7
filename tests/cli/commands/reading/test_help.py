"""`memlab help`: its topics hold what the program has, and commands show their own help."""

from __future__ import annotations

import json
import re

import pytest
from paths import REPOSITORY

from memlab.cli.app import COMMANDS, main
from memlab.cli.commands.reading.help import topics
from memlab.device.datasheets import loader
from memlab.kernels.user.arguments.fills import parse_fill
from memlab.kernels.user.arguments.parsing import parse_specification
from memlab.kernels.user.arguments.specifications import NUMPY_DTYPES
from memlab.roofline.documents.schema import run_schema

ROOMS = ("memlab", "cli", "roofline", "device", "kernels", "lessons")


def read(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words.split()) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


def test_topics_are_listed_and_shown_whole_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = read("help", capsys)
    assert max(map(len, text.splitlines())) <= 60
    listed = re.findall(r"^  (\S+)  ", text, re.M)
    assert listed == [*topics(), "schema"]
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        for name, text in topics().items():
            shown = read(f"help {name}", capsys)
            assert max(map(len, shown.splitlines())) <= columns
            squeezed = "".join(shown.split())
            for code in re.findall(r"`([^`\n]+)`", text):
                code_shown = "".join(code.replace(r"\|", "|").split())  # a cell's bar is escaped
                assert code_shown in squeezed, (columns, code)


def test_every_environment_variable_is_told() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for room in ROOMS
        for path in (REPOSITORY / room).rglob("*.py")
    )
    read_variables = set(re.findall(r"\b(MEMLAB_[A-Z_]+|SOURCE_DATE_EPOCH)\b", sources))

    assert len(read_variables) >= 5
    assert read_variables <= set(re.findall(r"\b[A-Z_]{3,}\b", topics()["environment"]))


def test_exit_codes_are_those_of_the_readme() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| (\d+) \| (.*) \|$", re.M)
    told = dict(row.findall(topics()["exit-codes"]))

    assert list(told) == [code for code, _ in row.findall(readme)]


def test_arguments_that_are_told_are_arguments() -> None:
    text = topics()["arguments"]
    (types,) = re.findall(r"Types: `([^`]+)`", text)
    assert set(types.split()) == set(NUMPY_DTYPES)
    first, second = (part.split("\n\n")[0] for part in text.split("| --- | --- |\n")[1:])
    for example in re.findall(r"`([^`]+)`", first):
        if re.match(r"(in:|out:|inout:)?\w+(\[|=)|@|null", example) and "[]=@" not in example:
            parse_specification(example)
    for example in re.findall(r"`([^`]+)`", second):
        parse_fill("i32" if "randint" in example else "f32", example)


def test_devices_that_are_told_are_there() -> None:
    named = re.findall(r"`(\w+)`", topics()["devices"].split("\n\n")[2])

    assert {name for name in named if not name.isdecimal()} <= set(loader.datasheet_names())


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(read("help schema", capsys)) == run_schema()


@pytest.mark.parametrize("command", ["run", "devicequery", "help"])
def test_a_command_shows_its_own_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(f"help {command}", capsys) == read(f"{command} --help", capsys)


def test_an_unknown_topic_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "enviroment"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("memlab: error: there is no help on 'enviroment': did you mean 'envir")
    assert err.count("\n") == 1
    assert set(COMMANDS).isdisjoint(topics())
