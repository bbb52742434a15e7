"""Finding and starting Compute Sanitizer, and its verdicts, tested without it."""

import json
import pickle
import re
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from paths import DATA

import memlab
from memlab.device.checking.findings import TOOLS, CheckFinding, SourceLocation
from memlab.device.nvidia_tools import launch_once, launch_request, sanitizer
from memlab.device.nvidia_tools.sanitizer import SanitizerError
from memlab.errors import MemlabError
from memlab.hardware import sanitizer_report
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch
from memlab.kernels.user.kernel import UserKernel
from memlab.launching import prepare

TEXTS = dict(
    re.findall(
        r"^\[(\w+)\]\n(.*?)\n(?=\n\[|\Z)", (DATA / "compute-sanitizer.txt").read_text(), re.S | re.M
    )
)
USAGE = "Version 2026.3.0.0 (build 1)\n  --print-limit arg (=100)\n  --padding arg (=0)\n"
PAST_THE_END = DATA / "planted/past_the_end.cu"
SOURCE = PAST_THE_END.read_text()


@pytest.fixture
def launch() -> Launch:
    tiled = find_kernel("tiled").prepare({"width": 64, "tile": 16}, Limits("NVIDIA H200"))
    return replace(tiled, source=SOURCE, source_name="some/folder/past_the_end.cu")


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Put a program called `compute-sanitizer` on the PATH."""

    def write(script: str) -> None:
        program = tmp_path / "compute-sanitizer"
        program.write_text(f"#!{sys.executable}\n{script}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return write


def test_both_verdicts_are_matched_by_tool_and_line() -> None:
    def finding(tool, line, other=None, kind="") -> CheckFinding:
        places = [number and SourceLocation(number, "", None, None) for number in (line, other)]
        return CheckFinding(tool, kind, "", "", "", *places)

    store, race, barrier = (
        finding("memcheck", 9),
        finding("racecheck", 7, 9),
        finding("synccheck", 8, 3),
    )
    turned, waited = finding("racecheck", 9, 7, "RAW or WAR"), finding("synccheck", 8)
    elsewhere = finding("memcheck", 7)

    pairs = sanitizer.match_findings([store, race, barrier], [waited, turned, elsewhere])

    assert [(pair.tool, pair.lines, pair.memlab, pair.sanitizer) for pair in pairs] == [
        ("memcheck", (7,), None, elsewhere),
        ("memcheck", (9,), store, None),
        ("racecheck", (7, 9), race, turned),
        ("synccheck", (8,), barrier, waited),
    ]


def test_a_launch_goes_through_every_tool(install, launch, tmp_path) -> None:
    install(
        "import json, os, pathlib, sys\n"
        f"if '--help' in sys.argv: print({USAGE!r}); sys.exit()\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "tool = sys.argv[sys.argv.index('--tool') + 1]\n"
        "(folder / f'{tool}.words').write_text(json.dumps(sys.argv[1:]))\n"
        "(folder / f'{tool}.request').write_bytes(pathlib.Path(sys.argv[-1]).read_bytes())\n"
        f"texts = json.loads({json.dumps(TEXTS)!r})\n"
        "pathlib.Path(sys.argv[sys.argv.index('--log-file') + 1]).write_text(texts[tool])\n"
        "sys.exit(1)\n"  # as where the kernel has faulted
    )

    report = sanitizer.run_sanitizer(launch, index=1, seed=7)

    assert report.version == "2026.3.0.0"
    assert {finding.tool for finding in report.findings} == set(TOOLS)
    assert len(report.findings) == 8
    for tool in TOOLS:
        seen = pickle.loads((tmp_path / f"{tool}.request").read_bytes())
        assert (seen.index, seen.seed, seen.poison) == (1, 7, False)
        words = json.loads((tmp_path / f"{tool}.words").read_text())
        assert {"--print-limit", "--padding"} == {*words} & {*sanitizer._OPTIONS}
        assert not Path(words[-1]).exists()  # nothing is left behind


def test_a_tool_without_a_verdict_is_a_note(install, launch) -> None:
    """For a kernel that faults, memcheck gives the location; under other tools the launch fails."""
    install(
        "import json, pathlib, sys\n"
        "tool = sys.argv[sys.argv.index('--tool') + 1] if '--tool' in sys.argv else ''\n"
        f"texts = json.loads({json.dumps(TEXTS)!r})\n"
        "text = texts['memcheck' if tool == 'memcheck' else 'nothing']\n"
        "tool and pathlib.Path(sys.argv[sys.argv.index('--log-file') + 1]).write_text(text)\n"
        "sys.exit('memlab: error: tiled: an illegal address was used')\n"
    )

    report = sanitizer.run_sanitizer(launch)

    assert {finding.tool for finding in report.findings} == {"memcheck"}
    assert report.tools == ("memcheck",)
    failed = [note for note in report.notes if "the launch failed" in note]
    assert [note.split(":")[0] for note in failed] == ["initcheck", "racecheck", "synccheck"]
    assert all("an illegal address" in note for note in failed)


CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
UNSUPPORTED = """\
========= COMPUTE-SANITIZER
========= Error: Failed to initialize WDDM debugger interface.
=========
========= Error: Device not supported. Please refer to the documentation
=========
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
UNTRACKED = """\
========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer didn't track the launch. Errors may go undetected.
=========
========= ERROR SUMMARY: 1 error
"""


@pytest.mark.parametrize(
    ("log", "ended", "why"),
    [
        (CLEAN, True, None),
        (CLEAN, False, "gave no verdict"),  # 2024.1 on Windows, where nothing was started
        (
            CLEAN.replace("ERR", "Error: process didn't terminate\n========= ERR"),
            False,
            "terminate",
        ),
        (UNSUPPORTED, True, "Device not supported"),  # in WSL the launch itself runs on
        (UNTRACKED, True, "didn't track the launch"),
    ],
)
def test_a_clean_log_is_believed_only_of_a_launch_that_was_watched_to_its_end(
    install, launch, log, ended, why
) -> None:
    install(
        "import pathlib, sys\n"
        "if '--help' in sys.argv: sys.exit()\n"
        f"pathlib.Path(sys.argv[sys.argv.index('--log-file') + 1]).write_text({log!r})\n"
        f"{ended} and pathlib.Path(sys.argv[-1] + '.done').touch()\n"
    )

    if why is None:
        report = sanitizer.run_sanitizer(launch, tools=("racecheck",))
        assert (report.tools, report.findings, report.notes) == (("racecheck",), (), ())
    else:
        with pytest.raises(SanitizerError, match=why):
            sanitizer.run_sanitizer(launch, tools=("racecheck",))


@pytest.mark.parametrize("error", [None, MemlabError("no memory")])
def test_the_process_that_is_watched_says_that_it_ended_well(
    launch, monkeypatch, tmp_path, error
) -> None:
    def run(request) -> None:
        assert request.launch.kernel == "tiled"
        if error is not None:
            raise error

    monkeypatch.setattr(launch_once, "launch_once", run)
    with launch_request.launch_command(launch, 0, 0) as words:
        monkeypatch.setattr(sys, "argv", words[-2:])
        with nullcontext() if error is None else pytest.raises(SystemExit, match="no memory"):
            launch_once.run_request()

        assert launch_request.completion_file(words[-1]).exists() == (error is None)


@pytest.mark.slow
def test_a_launch_that_never_ends_is_given_up_and_leaves_no_process(
    install, launch, tmp_path
) -> None:
    alive, target = tmp_path / "alive", tmp_path / "target.py"
    target.write_text(f"import pathlib\nwhile True: pathlib.Path({str(alive)!r}).touch()\n")
    install(
        "import subprocess, sys\n"
        f"'--help' in sys.argv or subprocess.run([sys.executable, {str(target)!r}])\n"
    )

    with pytest.raises(SanitizerError, match=r"did not finish memcheck of tiled within 1 s"):
        sanitizer.run_sanitizer(launch, timeout_s=1)

    alive.unlink()
    time.sleep(0.3)
    assert not alive.exists()


@pytest.mark.parametrize(
    ("log", "said", "message"),
    [
        (
            "========= Target application terminated before first instrumented API call\n",
            "memlab: error: a GPU needs PyCUDA: pip install 'memlab[gpu]'\n",
            "the launch failed (a GPU needs PyCUDA",
        ),
        (
            "========= Error: process didn't terminate successfully\n"
            "========= Target application terminated before first instrumented API call\n",
            "",
            "in a sandboxed container",
        ),
        ("", "", "gave no verdict (the launch did not run to its end)"),
        (
            "========= COMPUTE-SANITIZER\n========= Internal Sanitizer Error: no memory\n",
            "",
            "(Internal Sanitizer Error: no memory)",
        ),
        (
            "",
            "the argument for option '--demangle' is invalid\n"
            "Usage: compute-sanitizer [options] [your-program]\n\nGeneral options:\n  --help\n",
            "gave no verdict (the argument for option '--demangle' is invalid)",
        ),
        (
            "========= COMPUTE-SANITIZER\n"
            "========= Error: Target application terminated before first instrumented API call\n"
            "========= Error: couldn't find exit code.\n",
            "",
            "could not start the launch, perhaps because parts of it are missing: install it",
        ),
    ],
)
def test_why_there_is_no_verdict_is_one_line(install, launch, log, said, message) -> None:
    install(
        "import pathlib, sys\n"
        "if '--help' in sys.argv: sys.exit()\n"
        f"pathlib.Path(sys.argv[sys.argv.index('--log-file') + 1]).write_text({log!r})\n"
        f"sys.exit({said!r} or 1)\n"
    )

    with pytest.raises(SanitizerError) as caught:
        sanitizer.run_sanitizer(launch)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_without_it_the_message_says_how_to_get_it(launch, monkeypatch) -> None:
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: None)

    with pytest.raises(SanitizerError, match=r"pip install 'memlab\[sanitizer\]'"):
        sanitizer.run_sanitizer(launch)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        # Packages before 13.4.92 lack the program that starts the launch.
        (("bin/compute-sanitizer", "lib/libsanitizer-collection.so"), None),
        (
            (
                "bin/compute-sanitizer",
                "compute-sanitizer/x86/TreeLauncherSubreaper",
                "compute-sanitizer/TreeLauncherSubreaper",
                "compute-sanitizer/compute-sanitizer",
            ),
            "compute-sanitizer/compute-sanitizer",
        ),
    ],
)
def test_a_pip_package_is_taken_if_it_is_whole(monkeypatch, tmp_path, files, found) -> None:
    root = tmp_path / "nvidia/cu13"
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    listed = [SimpleNamespace(locate=lambda name=name: root / name) for name in files]
    monkeypatch.setattr(sanitizer, "files", lambda package: listed)
    monkeypatch.setattr(sanitizer.shutil, "which", lambda name: None)
    monkeypatch.setattr(sanitizer, "_INSTALL_PATTERNS", ())

    assert sanitizer.find_sanitizer() == (found and root / found)


def test_a_percent_sign_in_the_logs_path_is_meant_literally() -> None:
    words = sanitizer.sanitizer_command(Path("cs"), "", "memcheck", Path("/tmp/%p/log"), ["python"])

    assert words[words.index("--log-file") + 1] == "/tmp/%%p/log"


def test_the_options_are_those_of_an_installed_release(tmp_path) -> None:
    """It refuses an unknown option before it looks for a GPU."""
    program = sanitizer.find_sanitizer()
    if program is None:
        pytest.skip("Compute Sanitizer is not installed")
    done = subprocess.run([program, "--help"], check=False, capture_output=True, text=True)
    usage = done.stdout
    assert "--padding" in usage
    for tool in TOOLS:
        log = tmp_path / "100%" / tool
        log.parent.mkdir(exist_ok=True)
        words = sanitizer.sanitizer_command(program, usage, tool, log, ["/bin/true"])
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.stdout + done.stderr == ""  # a wrong option brings the whole usage
        assert "before first instrumented API call" in log.read_text()


@pytest.mark.gpu
@pytest.mark.parametrize(("defines", "lines"), [((), [9]), (("FIXED",), [])])
def test_a_real_gpu_and_memlab_agree(defines, lines) -> None:
    if sanitizer.find_sanitizer() is None:
        pytest.skip("Compute Sanitizer is not installed")
    arguments = ("in:f32[1000]", "out:f32[1000]", "i32=1000")
    kernel = UserKernel(
        str(PAST_THE_END), grid=(4,), block=(256,), args=arguments, defines=tuple(defines)
    )

    theirs = sanitizer_report(prepare(kernel, {}, device="0"), tools=("memcheck",))

    assert [finding.at.line for finding in theirs.findings] == lines
    assert [finding.at.line for finding in memlab.check(kernel, device="0").findings] == lines
