"""`memlab.toml`: any file is read or refused, and no file outside its folder is read."""

from __future__ import annotations

import json
import math
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fuzzing import NUMBERS, ODD, WORDS, cases, outside, watching
from hypothesis import given
from hypothesis import strategies as st

from memlab.errors import UsageError
from memlab.kernels.signature import KernelParameter, Signature
from memlab.kernels.user import project, scaffold
from memlab.kernels.user.kernel import UserKernel

TABLE = {
    "source": "saxpy.cu",
    "entry": "saxpy",
    "grid": 2,
    "block": [32, 1],
    "shared": 0,
    "defines": ["N=4", "FAST"],
    "include": ["headers"],
    "std": "c++20",
    "max-registers": 64,
    "use-fast-math": True,
    "fmad": False,
    "ptxas-options": ["-O1"],
    "args": ["f32=2.0", "f32[64]=@x.npy", "inout:f32[64]"],
    "constants": ["weights=@x.npy"],
    "expect": ["y=@x.npy"],
    "tolerance": 1e-5,
}
_OUTSIDE = "../secret.npy /etc/passwd /dev/zero link/secret.npy .. headers/../../secret.npy ~/x"
PATHS = st.sampled_from([*_OUTSIDE.split(), "x.npy", "headers", ".", "loop/x.npy", "\0", "\udcff"])
TEXTS = st.one_of(PATHS, PATHS.map("f32[64]=@{}".format), PATHS.map("y = @{}".format), WORDS)


class Raw(str):
    """A text that is written to the file unchanged."""


RAW = st.sampled_from(["0x" + "f" * 5000, "2**3", "1979-05-27", "07:32:00", "'''a\nb'''"])
PLAIN = st.one_of(TEXTS, st.integers(), st.floats(), st.booleans(), RAW.map(Raw))
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


def toml(value: Any) -> str:
    """Write a value as TOML."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else "nan" if math.isnan(value) else "-inf"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(map(toml, value)) + "]"


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A valid file with some changed, removed or added keys, and sometimes noise."""
    table: dict[str, Any] = dict(TABLE)
    for _ in range(draw(st.integers(0, 3))):
        key = draw(st.sampled_from([*TABLE, "reference", "kernel", "Grid"]) | WORDS)
        match draw(st.sampled_from(["value", "gone", "item"])):
            case "value":
                table[key] = draw(VALUES)
            case "gone":
                table.pop(key, None)
            case "item":
                table[key] = [draw(TEXTS)] if key != "source" else draw(PATHS)
    name = draw(st.sampled_from(["mine", "mine", "naive"]) | WORDS)
    head = draw(st.sampled_from(["[kernels.{}]", "[kernels.{}]", "[{}]", "[[kernels.{}]]"]))
    lines = [
        head.format(json.dumps(name)),
        *(f"{json.dumps(k)} = {toml(v)}" for k, v in table.items()),
    ]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        noise = draw(
            ODD | NUMBERS | st.sampled_from(["[" * 5000, "a = " + "[" * 5000, "x = 1e99999"])
        )
        lines.insert(draw(st.integers(0, len(lines))), noise)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a link to its outside, and a cyclic link."""
    home = tmp_path_factory.mktemp("outside") / "home"
    (home / "headers").mkdir(parents=True)
    (home / "link").symlink_to("..")
    (home / "loop").symlink_to("loop")
    (home.parent / "secret.npy").write_bytes(b"")
    for text in ("[kernels.mine]\nsource = 'saxpy.cu'", "[other]"):  # what is imported then
        (home / project.PROJECT_FILE).write_text(text)
        with suppress(UsageError):
            project.read_user_kernels(home / project.PROJECT_FILE)
    return home


@given(text=documents() | st.text(max_size=60))
@cases(250)
def test_any_file_gives_kernels_or_is_refused(folder: Path, text: str) -> None:
    path = folder / project.PROJECT_FILE
    path.write_bytes(text.encode(errors="surrogateescape"))
    found, message = {}, ""
    with watching() as watch:
        try:
            found = project.read_user_kernels(path)
        except UsageError as error:
            message = str(error)

    assert not outside(watch.read, folder)
    assert not message or message.startswith((str(path), f"cannot read {path}"))
    for kernel in found.values():
        inside(folder, kernel.source, *kernel.include)
        texts = (*kernel.args, *kernel.constants, *kernel.expect)
        inside(
            folder,
            *(match[1] for match in map(re.compile(r"=\s*@(.*)", re.S).search, texts) if match),
        )


def inside(folder: Path, *paths: str) -> None:
    for path in paths:
        assert (folder / path).resolve().is_relative_to(folder.resolve())


NAMES = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["naive", "a<32>", "ns::a", "a-32-", "\udcff", "\0"]
)


@given(
    NAMES.map("{}.cu".format),
    st.lists(NAMES, min_size=1, max_size=3, unique=True),
    st.sampled_from(["f32", "i32", "bool", "u64"]),
)
@cases(50)
def test_what_init_writes_is_read_again(source: str, names: list[str], kind: str) -> None:
    parameters = (KernelParameter("a", "scalar", kind, kind, 8),)
    signatures = [Signature(name, name, parameters, ()) for name in names]
    try:
        text = scaffold.project_file_text(scaffold.kernel_tables(UserKernel(source), signatures))
    except UsageError:
        return
    document = tomllib.loads(text.encode().decode())
    tables = list(document["kernels"].values())
    assert [table["entry"] for table in tables] == [name for name in names if name != "\udcff"]
    assert {table["source"] for table in tables} == {source}
