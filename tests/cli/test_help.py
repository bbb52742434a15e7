"""Help, version and wrong usage: where they go, their exit codes, and what they cost."""

import subprocess
import sys

import pytest

from memlab.cli.app import main
from memlab.errors import DeviceError, UsageError
from memlab.kernels import catalog

HEAVY = {"numpy", "pandas", "matplotlib", "rich", "cuda", "elftools", "sqlite3", "pycuda"}


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--help",
        "-h",
        "--version",
        "devicequery --help",
        "run --help",
        "run naive --help",
        "run tiled --help",
        "run tiled-dynamic -h",
        "roofline --help",
        "kernels --help",
        "kernels",
        "kernels --json",
        "runs --help",
        "compare --help",
        "baseline --help",
        "baseline save --help",
        "baseline check --help",
        "occupancy --help",
        "occupancy tiled --help",
        "analyze --help",
        "analyze tiled --help",
        "trace --help",
        "trace tiled --help",
        "sass tiled --help",
        "explain --help",
        "peaks --help",
        "doctor --help",
    ],
)
def test_help_goes_to_stdout(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0

    out, err = capsys.readouterr()
    assert out
    assert not err
    assert max(len(line) for line in out.splitlines()) <= 80


def test_commands_stand_in_the_order_of_a_first_session(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--help"])

    listed = capsys.readouterr().out.split("Commands:")[1].split("\n\n")[0]
    assert [line.split()[0] for line in listed.strip().splitlines()] == [
        "devicequery",
        "run",
        "analyze",
        "check",
        "trace",
        "sass",
        "sweep",
        "occupancy",
        "roofline",
        "report",
        "peaks",
        "calibrate",
        "init",
        "kernels",
        "runs",
        "compare",
        "baseline",
        "explain",
        "lesson",
        "doctor",
        "help",
    ]


def test_a_kernels_help_shows_its_own_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "tiled-dynamic", "--help"])

    text = " ".join(capsys.readouterr().out.split())
    assert "--tile T Edge T of the two tiles" in text
    assert "[1 to 32 where a block may have 1024 threads; default: the widest that fits]" in text
    assert "[1 or more; default: 1024]" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("anlyze", "unknown command 'anlyze': did you mean 'analyze'?"),
        ("run", "which kernel? for example 'memlab run tiled'; see 'memlab run --help'"),
        ("run naiv", "unknown kernel 'naiv': did you mean 'naive'?"),
        (
            "run zzz",
            "unknown kernel 'zzz': 'memlab kernels' lists all; your own is FILE.cu:ENTRY",
        ),
        ("kernels --tile 8", "No such option: --tile; see 'memlab kernels --help'"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2

    out, err = capsys.readouterr()
    assert not out
    assert err == f"memlab: error: {message}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("no"), 2), (DeviceError("no"), 3), (KeyboardInterrupt(), 130)],
)
def test_an_error_becomes_its_exit_code(
    error: BaseException,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(catalog, "find_kernel", fail)

    assert main(["run", "naive"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_leaves_early_causes_no_noise() -> None:
    program = "import sys; from memlab.cli.app import main; sys.exit(main(['kernels', '--json']))"
    with subprocess.Popen(
        [sys.executable, "-c", f"import time; time.sleep(0.2); {program}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait()


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from memlab.cli.app import main; main(['--help']); "
        "print(*sys.modules, file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert HEAVY.isdisjoint(done.stderr.split())


def test_nothing_is_collected_at_the_end_of_a_command() -> None:
    program = (
        "import sys, gc; from memlab.cli.app import main; gc.disable()\n"
        "class Ring:\n"
        "    def __del__(self): print('collected')\n"
        "ring = Ring(); ring.itself = ring; sys.argv[1:] = ['--version']\n"
    )

    texts = [
        subprocess.run(
            [sys.executable, "-c", program + end], capture_output=True, text=True, check=True
        ).stdout
        for end in ("main()", "main(['--version'])")
    ]

    assert texts[0].startswith("memlab ")
    assert "collected" not in texts[0]
    assert texts[1].endswith("collected\n")  # a process that goes on with something else
