"""`memlab lesson`: the lessons in a terminal, and their commands in a folder of their own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from memlab.cli.app import main
from memlab.lessons import packages
from memlab.lessons.lesson import all_lessons, find_lesson

MEMLAB = [sys.executable, "-m", "memlab"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, whose files and settings no lesson may touch or see."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "saxpy.cu").write_text("mine")
    (mine / "images").write_text("mine, too")
    monkeypatch.chdir(mine)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "mine.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "no-such-device")
    return mine


def test_lessons_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lesson"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for lesson in all_lessons():
        assert f"{lesson.number} {lesson.title} {lesson.question}" in shown


@pytest.mark.parametrize("columns", [60, 80])
def test_a_lesson_is_read_with_its_outputs(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["lesson", "2"]) == 0
    out, err = capsys.readouterr()
    assert not err
    for command in find_lesson(2).commands:  # whole, as it is copied
        assert f"$ {command.line}\n{command.output}\n" in out
        out = out.replace(f"$ {command.line}\n{command.output}\n", "")
    assert max(map(len, out.splitlines())) <= columns
    assert "--answers" in out
    assert main(["lesson", "naive", "--answers"]) == 0
    assert "--answers" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("number", ["2", "14"])
def test_a_lesson_runs_wherever_it_is_typed(number: str, folder: Path) -> None:
    """Twice, since a second time its pictures, and memlab.toml, could be in the way."""
    for _ in range(2):
        done = subprocess.run(
            [*MEMLAB, "lesson", number, "--run"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        for command in find_lesson(number).commands:
            assert f"$ {command.line}" in done.stdout
        assert "error" not in done.stderr
        made = Path(done.stderr.splitlines()[-1].rpartition(" ")[2])
        assert list((made / "images").iterdir()) or number == "14"
    assert {path.name for path in folder.iterdir()} == {"saxpy.cu", "images"}
    assert not (folder.parent / "mine.sqlite3").exists()


def test_its_commands_run_in_order_and_the_text_stands_between(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run(words: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        ran.append((words[4:], cwd))
        return subprocess.CompletedProcess(words, 1 if words[4] == "check" else 0)

    monkeypatch.setattr(subprocess, "run", run)
    new = folder.parent / "new"
    assert main(["lesson", "15", "--run", "--folder", str(new)]) == 0

    assert [tuple(words) for words, _ in ran] == [each.words for each in find_lesson(15).commands]
    assert {place for _, place in ran} == {new}
    assert (new / "hasty.cu").is_file()
    out, err = capfd.readouterr()
    assert find_lesson(15).title in out
    for command in find_lesson(15).commands:
        assert f"$ {command.line}\n" in out
    assert err == f"memlab: the files and pictures of the lesson are in {new}\n"


def test_a_command_that_fails_ends_the_lesson(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 3))
    assert main(["lesson", "2", "--run"]) == 3
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert f"{find_lesson(2).commands[0].line} gave the exit code 3" in err


def test_an_interrupted_lesson_says_once_where_its_files_are(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(words: list[str], **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    new = folder.parent / "new"
    assert main(["lesson", "2", "--run", "--folder", str(new)]) == 130
    assert capfd.readouterr().err == (
        f"memlab: interrupted: the files and pictures so far are in {new}\n"
    )


@pytest.mark.parametrize(
    ("number", "package", "following"), [(17, "triton", 0), (16, "numba", 1), (18, "numba", 0)]
)
def test_what_needs_a_missing_package_is_left_out(
    number: int,
    package: str,
    following: int,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = []

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(tuple(words[4:]))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == package else True)
    new = folder.parent / "new"
    assert main(["lesson", str(number), "--run", "--folder", str(new)]) == 0

    commands = [each.words for each in find_lesson(number).commands]
    needing = [words for words in commands if f"product_{package}.py:tiled" in words]
    comparing = [words for words in commands if words[0] == "compare" and package in words]
    assert (bool(needing), len(comparing)) == (True, following)
    assert ran == [words for words in commands if words not in needing + comparing]
    out, err = capfd.readouterr()
    assert all(f"$ {each.line}\n" in out for each in find_lesson(number).commands)
    advice = f"memlab: left out: product_{package}.py needs {package}: "
    advice += f"pip install 'memlab[{package}]'"
    after = f"memlab: left out: the run {package!r} was left out"
    told = {**dict.fromkeys(needing, advice), **dict.fromkeys(comparing, after)}
    assert err.splitlines()[:-1] == [told[words] for words in commands if words in told]


def test_in_a_terminal_each_command_waits(folder: Path) -> None:
    terminal, side = pty.openpty()
    with subprocess.Popen(
        [*MEMLAB, "lesson", "2", "--run"], stdin=side, stdout=side, stderr=side, close_fds=True
    ) as process:
        os.close(side)
        shown = b""
        while b"[Enter runs it, q ends the lesson]" not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, b"q\n")
        assert process.wait(20) == 0
    os.close(terminal)
    assert find_lesson(2).commands[0].words[0].encode() in shown


def test_a_shell_has_the_files_store_and_device_of_the_lesson(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = folder.parent / "shell"
    shell.write_text(
        '#!/bin/sh\nls; echo "$MEMLAB_DEVICE ${MEMLAB_STORE##*/}"\n'
        'case $PATH in "$(dirname "$PYTHON")":*) echo found;; esac\nexit 7\n'
    )
    shell.chmod(0o755)
    monkeypatch.setenv("SHELL", str(shell))
    monkeypatch.setenv("PYTHON", sys.executable)

    assert main(["lesson", "4", "--shell"]) == 7

    out, err = capfd.readouterr()
    assert "saxpy.cu" in out.split()
    assert "h200 runs.db" in out
    assert "found" in out
    assert err.startswith("memlab: a shell in ")
    monkeypatch.setenv("SHELL", "/no/such/shell")
    assert main(["lesson", "4", "--shell"]) == 2
    assert "cannot start the shell /no/such/shell" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lesson 99", "there is no lesson '99': give a number from 1 to 29"),
        ("lesson --run", "which lesson? for example 'memlab lesson 4 --run'"),
        ("lesson 4 --run --shell", "choose one"),
        ("lesson 4 --folder new", "--folder goes with --run or --shell"),
        ("lesson 4 --run --folder .", "is not empty"),
    ],
)
def test_wrong_usage_is_one_line(
    words: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert not out
    assert said in err
    assert err.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == {"saxpy.cu", "images"}
