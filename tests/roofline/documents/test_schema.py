"""The JSON Schema of a run: real documents are valid, and others are not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from paths import REPOSITORY

from memlab.cli.app import main
from memlab.roofline.documents.schema import run_schema

SAXPY = "saxpy.cu:saxpy --grid 4 --block 32 --arg f32=2 --arg f32[99] --arg inout:f32[99]"
RUNS = [
    "tiled --width 64 --tile 8",
    "filter-constant-divergent",
    "register-pressure --n 64 --device a100",
    "wgmma-cluster --width 256",
    f"{SAXPY} --arg i32=99 --reference saxpy.py:saxpy --label first",
    f"{SAXPY} --arg i32=99 --expect y=@nan.npy",  # its error is infinite
    pytest.param("naive --width 8192 --device rtx3070", marks=pytest.mark.slow),  # a sample
]


def closed(schema: Any) -> Any:
    """The schema without room for further keys, so that none goes unnoticed."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {**inner, "additionalProperties": False} if "required" in inner else inner


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Any]:
    """Give the document of a run."""
    import numpy as np

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    for name in ("saxpy.cu", "saxpy.py"):
        (tmp_path / name).write_text((REPOSITORY / "docs" / "examples" / name).read_text())
    np.save("nan.npy", np.full(99, np.nan))

    def document(words: str) -> Any:
        assert main(["run", *words.split(), "--json", "--no-store"]) in (0, 1)
        return json.loads(capsys.readouterr().out)

    return document


@pytest.mark.parametrize("words", RUNS)
def test_the_document_of_a_run_is_valid(words: str, run: Callable[[str], Any]) -> None:
    schema = run_schema()
    Draft202012Validator.check_schema(schema)

    Draft202012Validator(closed(schema)).validate(run(words))


def _faults(document: Any) -> Iterator[tuple[str, Any]]:
    """Documents with one fault each."""
    for path, value in (
        (("schema_version",), 2),
        (("kernel",), None),
        (("counters", "global_load_sectors"), 1.5),
        (("time", "provenance"), "guessed"),
        (("time", "median_s"), "fast"),
        (("launch", "grid"), [1, 2]),
        (("device", "compute_capability"), [9, 0]),
        (("advice",), "none"),
    ):
        wrong = copy.deepcopy(document)
        inner = wrong
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        yield f"{path} is {value}", wrong
        del inner[path[-1]]
        yield f"{path} is missing", wrong


def test_what_is_no_document_of_a_run_is_invalid(run: Callable[[str], Any]) -> None:
    validator = Draft202012Validator(run_schema())
    document = run("aligned --n 64")

    assert validator.is_valid(document | {"new": 1})
    for fault, wrong in _faults(document):
        assert not validator.is_valid(wrong), fault


def test_the_published_schema_is_this_one() -> None:
    published = (REPOSITORY / "docs" / "run.schema.json").read_text(encoding="utf-8")

    assert json.loads(published) == run_schema(), "memlab help schema > docs/run.schema.json"


def test_every_figure_is_described() -> None:
    schema = run_schema()
    bare = [
        f"{name}.{key}"
        for name, record in schema["$defs"].items()
        for key, value in record.get("properties", {}).items()
        if not value.get("description")
    ]

    assert not bare
