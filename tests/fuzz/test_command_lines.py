"""Whole command lines, in process: a documented exit code, one line an error, and no traceback.

Commands and options are read from the command line itself, so a new one is covered as it comes.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import pytest
import typer
from fuzzing import NUMBERS, WORDS, cases, children, outside, seldom, watching
from hypothesis import given
from hypothesis import strategies as st

from memlab.cli.app import app, main
from memlab.kernels.catalog import CATALOG

EXIT_CODES = {0, 1, 2, 3}
"""The documented exit codes except 130, since nothing interrupts these tests."""
NOTES = ("~ modelled", "! invalid")
"""Other texts on stderr: the footnotes of a table."""

SOURCE = """
__constant__ float weights[4];
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i] + weights[0];
}
"""
SEVERAL = """
template <int N> __global__ void fill(int *p) { p[threadIdx.x] = N; }
extern "C" __global__ void endless(int *p) { while (true) atomicAdd(p, 1); }
extern "C" __global__ void stray(int *p) { p[threadIdx.x + 1000000] = 1; }
"""
PROJECT = """
[kernels.mine]
source = "saxpy.cu"
entry = "saxpy"
grid = 2
block = 32
args = ["f32=2.0", "f32[64]", "inout:f32[64]", "i32=64"]
"""
REFERENCE = """
def saxpy(a, x, y, n):
    y[:n] += a * x[:n]

def wrong(a, x, y, n):
    return x[:3]

def nothing(*arguments):
    raise SystemExit("no\\nreason")
"""
SAXPY = "--grid=2 --block=32 --arg=f32=2 --arg=f32[64] --arg=inout:f32[64] --arg=i32=64"
ODD_FILES = ["a\nb.cu", "\udcff.cu", "[bold]<b>.cu", "\x1b[31m.cu", "日本$^{_$.cu"]
LAUNCHES = {
    "saxpy.cu:saxpy": SAXPY,
    "mine": "",
    "several.cu:fill<3>": "--grid=1 --block=32 --arg=out:i32[32]",
    "several.cu:endless": "--grid=1 --block=32 --arg=inout:i32[1]",
    "several.cu:stray": "--grid=1 --block=32 --arg=out:i32[32]",
    **dict.fromkeys(ODD_FILES, SAXPY),
}
"""User kernels with the options that their launches need."""
TARGETS = [*LAUNCHES, "saxpy.cu", "several.cu", "several.cu:fill", "broken.cu:broken", "empty.cu"]
TARGETS += ["folder.cu", "x.cu", "/dev/zero"]
TARGETS += ["several.cu:fill", "/dev/zero", *ODD_FILES]
FILES = ["there.json", "new.json", "new.csv", "new.png", "new.svg", "new.html", "new.toml", "."]
FILES += ["nowhere/new.json", "folder", "/dev/null", "/dev/full", "a\nb.json", "new.JSON", "x.npy"]
SPECIFICATIONS = ["f32=2.0", "f32[64]", "inout:f32[64]", "i32=64", "out:f32[64]", "f32[64]=@x.npy"]
SPECIFICATIONS += ["f32[2]=@object.npy", "f32[9999999999999]", "u8[64]=randint:0:9", "f32=nan"]
SUITABLE = {
    "FILE": FILES,
    "PATH": ["runs.sqlite3", "other.sqlite3", "there.json", "folder", "/dev/null", "nowhere/runs"],
    "NAME": ["h200", "a100", "rtx3070", "H200", "h20", "0", "cuda:0", "9" * 30, "naive", "saxpy"],
    "SECONDS": ["1", "2"],
    "VALUE": ["emulated", "ncu", "compute-sanitizer"],
    "SIZE": ["1GiB", "64MiB", "1", "4 kib"],
    "S": ["0", "1", "2"],
    "X,Y[,Z]": ["0", "1", "0,0", "1,1", "0,1,0", "2,0"],
    "X[,Y[,Z]]": ["1", "2", "2,1", "32", "1,2,3", "0x8", "2147483647"],
    "ID": ["1", "2"],
    "ID...": ["1", "2"],
    "SPEC": SPECIFICATIONS,
    "NAME=FILL": ["weights=ones", "weights=random", "weights=@x.npy", "weight=zeros"],
    "NAME[=VALUE]": ["N=4", "N", "N=(", "float=double"],
    "DIR": [".", "folder", "nowhere", "/dev/null"],
    "DIALECT": ["c++17", "c++20", "c++03"],
    "IDX=@FILE.npy": ["2=@x.npy", "y=@x.npy", "0=@x.npy", "y=@nowhere.npy", "y=x.npy"],
    "FILE.py:FUNCTION": ["reference.py:saxpy", "reference.py:wrong", "reference.py:nothing"],
    "REL": ["0", "1e-5", "1"],
    "TOOL": ["memcheck", "racecheck", "all", "none"],
    "FILE.cu[:ENTRY]": TARGETS,
    "[TERM|KERNEL]": ["wavefront", "tiled", "sector", "coalesced access"],
}
"""Suitable values of an option, by its placeholder in the help."""
SIZES = ["1", "4", "8", "16", "32", "33"]
"""Suitable values of all other options: sizes of kernels, counts."""


@dataclass(frozen=True)
class Option:
    """An option, or an argument if it has no spelling.

    Attributes:
        spellings: As on the command line.
        takes: What stands for its value in the help; empty for a flag.
    """

    spellings: tuple[str, ...]
    takes: str


@dataclass(frozen=True)
class Command:
    """A command with all its names, without `memlab`."""

    path: tuple[str, ...]
    options: tuple[Option, ...]


@cache
def commands() -> dict[str, tuple[Command, ...]]:
    """All commands with their sub-commands, by name; `memlab` alone has an empty name."""
    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    # The behavior of Typer's completion depends on the shell that started the tests.
    own = [parameter for parameter in root.params if not parameter.name.endswith("_completion")]
    found = {"": (Command((), tuple(map(_option, own))),)}
    for name in root.list_commands(context):
        found[name] = tuple(_walk(root.get_command(context, name), context, (name,)))
    return found


def _walk(command: Any, context: Any, path: tuple[str, ...]) -> Iterator[Command]:
    yield Command(path, tuple(map(_option, command.params)))
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    for name in names:
        yield from _walk(command.get_command(context, name), context, (*path, name))
    if set(names) >= set(CATALOG):  # it also takes user kernels, which have the same options
        own = command.get_command(context, "saxpy.cu:saxpy")
        for name in TARGETS:
            yield Command((*path, name), tuple(map(_option, own.params)))


def _option(parameter: Any) -> Option:
    spelled = (*parameter.opts, *parameter.secondary_opts)
    if parameter.param_type_name == "argument":
        return Option((), parameter.metavar or "VALUE")
    return Option(spelled, "" if parameter.is_flag else parameter.metavar or "VALUE")


def value(draw: st.DrawFn, takes: str) -> str:
    """Values of an option, mostly suitable."""
    if seldom(draw, 10):
        return draw(st.one_of(WORDS, NUMBERS, st.sampled_from(SPECIFICATIONS + FILES)))
    choices = re.fullmatch(r"[<\[](.+\|.+)[>\]]", takes)  # such as <all|global>
    return draw(
        st.sampled_from(SUITABLE.get(takes) or (choices[1].split("|") if choices else SIZES))
    )


@st.composite
def lines(draw: st.DrawFn, name: str) -> list[str]:
    """A command with some options, some of them wrong, and sometimes an additional word."""
    chosen = draw(st.sampled_from(commands()[name]))
    words = list(chosen.path)
    named = [option for option in chosen.options if option.spellings]
    picked = draw(st.lists(st.sampled_from(named), max_size=4)) if named else []
    if {*chosen.path} & {*CATALOG}:  # at full size they take long
        words += [named[0].spellings[0], draw(st.sampled_from(SIZES))]
    elif chosen.path:
        words += LAUNCHES.get(chosen.path[-1], "--force" if name == "init" else "").split()
    picked += [option for option in named if option.takes == "SECONDS"]
    for option in picked:
        spelling = draw(st.sampled_from(option.spellings))
        if not option.takes:
            words.append(spelling)
        elif draw(st.booleans()):
            words += [spelling, value(draw, option.takes)]
        else:
            words.append(f"{spelling}={value(draw, option.takes)}")
    for option in chosen.options:
        if not option.spellings and not seldom(draw, 5):
            words.append(value(draw, option.takes))
    while seldom(draw, 6):
        at = draw(st.integers(0, len(words)))
        match draw(st.sampled_from(["more", "less", "other"])):
            case "more":
                words.insert(at, draw(WORDS))
            case "less":
                del words[at : at + 1]
            case "other":
                words[at : at + 1] = [draw(WORDS)]
    return words


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder, which is restored from the folder `template` for each case."""
    folder = tmp_path_factory.mktemp("fuzz")
    template = folder / "template"
    (template / "folder").mkdir(parents=True)
    (template / "folder.cu").mkdir()
    for name in ("saxpy.cu", *ODD_FILES):
        (template / name).write_text(SOURCE)
    (template / "several.cu").write_text(SEVERAL)
    (template / "broken.cu").write_text("__global__ void broken( { \x1b[31m }\n")
    (template / "empty.cu").write_text("")
    (template / "reference.py").write_text(REFERENCE)
    (template / "memlab.toml").write_text(PROJECT)
    (template / "there.json").write_text("mine")
    np.save(template / "x.npy", np.arange(64, dtype=np.float32))
    np.save(template / "object.npy", np.array([{}, None], dtype=object), allow_pickle=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COLUMNS", "MEMLAB_BACKEND", "SOURCE_DATE_EPOCH"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(folder / "home"))  # where nothing belongs
        (folder / "home").mkdir()
        (folder / "temporary").mkdir()
        patch.setattr("tempfile.tempdir", str(folder / "temporary"))
        patch.setenv("MEMLAB_DEVICE", "h200")
        patch.setenv("MEMLAB_STORE", str(folder / "work" / "runs.sqlite3"))
        patch.setenv("MPLCONFIGDIR", str(folder / "cache"))
        # A line without its sizes must end too, and one without its limit (below).
        patch.setattr("memlab.drawing.DEFAULT_LADDER", (("naive", {"width": 8}),))
        (folder / "work").mkdir()
        patch.chdir(folder / "work")
        code, _, _ = run(
            ["run", "naive", "--width", "8", "--store", str(template / "runs.sqlite3")]
        )
        assert code == 0
        # Not before: where nothing is compiled yet, the first launch takes longer.
        patch.setattr("memlab.launching.EMULATION_TIMEOUT_S", 2.0)
        yield folder
        patch.chdir(folder)


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command line: exit code, stdout, stderr."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors=how)
        for how in ("strict", "backslashreplace")
    )
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return code, *texts


def renew(home: Path) -> None:
    """Restore the current folder."""
    os.chdir(home)
    shutil.rmtree(home / "work", ignore_errors=True)
    shutil.copytree(home / "template", home / "work")
    os.chdir(home / "work")


def check(home: Path, words: list[str]) -> None:
    """Run a command line and check the rules."""
    renew(home)
    before = children()
    with watching() as watch:
        code, out, err = run(words)

    assert code in EXIT_CODES
    assert "Traceback" not in err
    assert not [
        character
        for character in out + err
        if category(character) == "Cc" and character not in "\n\t"
    ]
    compilers = re.match(r"memlab: error: .*\(\d+\): .*error", err)  # log comes through whole
    assert compilers or all(line.startswith(("memlab: ", *NOTES)) for line in err.split("\n")[:-1])
    if code in (2, 3):
        assert sum(line.startswith("memlab: error: ") for line in err.splitlines()) == 1
        # The output before an error is the result that could not be stored, or points' reasons.
        assert not out or "cannot write" in err or "no point could run" in err, "PRINTED"
    if "--json" in words and out and not {"--help", "-h"} & set(words):
        json.loads(out)
    assert not any("os.system" in command or "/bin/sh" in command for command in watch.started)
    assert not list((home / "temporary").glob("memlab*"))  # Dask keeps a folder of its own
    assert not outside(watch.written, home, Path(os.environ["MEMLAB_CACHE"]), Path("/dev"))
    assert children() == before


@pytest.mark.parametrize("name", commands())
@given(data=st.data())
@cases(50)
def test_any_command_line_keeps_the_rules(home: Path, name: str, data: st.DataObject) -> None:
    check(home, data.draw(lines(name)))
