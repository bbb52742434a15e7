"""`memlab lesson`: read the lessons, and run their commands in a folder of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli.app import EXIT_INTERRUPTED
from memlab.cli.kernel_commands import EXIT_FINDING
from memlab.cli.output import print_message
from memlab.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from memlab.lessons.lesson import Command, Lesson


def _complete_lesson(incomplete: str) -> list[tuple[str, str]]:
    from memlab.lessons.lesson import all_lessons

    numbered = ((str(lesson.number), lesson.title) for lesson in all_lessons())
    return [(number, title) for number, title in numbered if number.startswith(incomplete)]


def lesson(
    number: Annotated[
        str | None,
        typer.Argument(
            metavar="[N]",
            help="The lesson to read; alone, list them all.",
            autocompletion=_complete_lesson,
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Run its commands while you read; in a terminal, each waits for Enter.",
        ),
    ] = False,
    shell: Annotated[
        bool, typer.Option("--shell", help="Open a shell in the folder of the lesson.")
    ] = False,
    answers: Annotated[
        bool, typer.Option("--answers", help="Show the answers of its exercises.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="Where its commands run: an empty folder. [default: one in your cache folder]",
        ),
    ] = None,
) -> None:
    """Read the lessons on memory, and run their commands as you read.

    The commands run in a folder of their own, with the example files, an empty store and the
    emulated H200, so that they give what the text says.
    """
    from memlab.lessons.lesson import all_lessons, find_lesson
    from memlab.roofline.reports.lesson import lesson_list, lesson_report
    from memlab.roofline.reports.parts import console

    if number is None:
        if run or shell or answers or folder:
            raise UsageError("which lesson? for example 'memlab lesson 4 --run'")
        console().print(lesson_list(all_lessons()))
        return
    chosen = find_lesson(number)
    if run and shell:
        raise UsageError("--run and --shell were both given: choose one")
    if folder is not None and not (run or shell):
        raise UsageError("--folder goes with --run or --shell, which run commands")
    if shell:
        raise typer.Exit(_open_shell(chosen, _prepared_folder(chosen, folder)))
    if run:
        place = _prepared_folder(chosen, folder)
        try:
            code = _run_lesson(chosen, place, answers)
        except KeyboardInterrupt:
            print_message(f"interrupted: the files and pictures so far are in {place}")
            code = EXIT_INTERRUPTED
        raise typer.Exit(code)
    console().print(lesson_report(chosen, answers), crop=False)
    if sys.stdout.isatty():
        print_message(f"'memlab lesson {chosen.number} --run' runs these commands as you read")


def _prepared_folder(lesson: "Lesson", folder: Path | None) -> Path:
    from memlab.lessons.folder import make_folder, own_folder

    place = own_folder(lesson.name) if folder is None else folder
    make_folder(place)
    return place.resolve()


def _run_lesson(lesson: "Lesson", folder: Path, answers: bool) -> int:
    """Show a lesson and run its commands; return the exit code."""
    from memlab.lessons.packages import reason_to_leave_out
    from memlab.roofline.reports.lesson import command_layout, text_layout
    from memlab.roofline.reports.parts import console

    asks = sys.stdin.isatty() and sys.stdout.isatty()
    output = console()
    left_out: list[Command] = []
    for part in lesson.parts(answers):
        if isinstance(part, str):
            output.print(text_layout(part))
            continue
        if reason := reason_to_leave_out(part, folder, left_out):
            left_out.append(part)
            output.print(command_layout(part), crop=False)
            sys.stdout.flush()
            print_message(f"left out: {reason}")
            output.print()
            continue
        if not _announce(part, output, asks):
            break
        sys.stdout.flush()
        code = subprocess.run(
            # Without the folder on Python's path, where the lesson has modules.
            [sys.executable, "-P", "-m", "memlab", *part.words],
            cwd=folder,
            env=_environment(folder),
            check=False,
        ).returncode
        output.print()
        if code and not (code == EXIT_FINDING and part.words[0] == "check"):
            print_message(f"error: {part.line} gave the exit code {code}: the lesson ends here")
            return code
    print_message(f"the files and pictures of the lesson are in {folder}")
    return 0


def _announce(command: "Command", output: "Console", asks: bool) -> bool:
    """Show a command, and wait for Enter where someone may press it; False ends the lesson."""
    from memlab.roofline.reports.lesson import command_layout

    output.print(command_layout(command), crop=False)
    if not asks:
        return True
    try:
        return input("[Enter runs it, q ends the lesson] ").strip().lower() not in ("q", "quit")
    except EOFError:
        return False


def _open_shell(lesson: "Lesson", folder: Path) -> int:
    """Open the user's shell in the folder of a lesson; return its exit code."""
    shell = os.environ.get("SHELL") or shutil.which("bash") or "/bin/sh"
    print_message(
        f"a shell in {folder} with the files, store and device of lesson {lesson.number}; "
        "'exit' leaves it"
    )
    environment = _environment(folder)
    # The memlab that is running, also where its environment is not activated.
    scripts = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join([scripts, environment.get("PATH", os.defpath)])
    try:
        return subprocess.run([shell], cwd=folder, env=environment, check=False).returncode
    except OSError as error:
        raise UsageError(
            f"cannot start the shell {shell} ({error.strerror or error}): set SHELL to another"
        ) from None


def _environment(folder: Path) -> dict[str, str]:
    from memlab.lessons.folder import command_environment

    return command_environment(folder, os.environ)
