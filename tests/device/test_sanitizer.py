"""Compute Sanitizer's text read, and its command built, without Compute Sanitizer."""

import json
import pickle
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from memlab import gpu, lab
from memlab.device import sanitizer
from memlab.device.findings import TOOLS, Finding, Place
from memlab.device.sanitizer import SanitizerError
from memlab.device.sanitizer_text import parse
from memlab.kernels.catalog import find
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch
from memlab.kernels.own import OwnKernel

DATA = Path(__file__).parents[1] / "data"
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
    tiled = find("tiled").prepare({"width": 64, "tile": 16}, Limits("NVIDIA H200"))
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


def line(number: int) -> str:
    return SOURCE.splitlines()[number - 1].strip()


def test_memcheck_is_read(launch) -> None:
    found, notes = parse(TEXTS["memcheck"], "memcheck", launch)

    misaligned, outside = found
    assert (misaligned.kind, misaligned.space, misaligned.count) == ("misaligned", "global", 1)
    # In a header: the frame in the kernel's own file says where.
    assert misaligned.at == Place(8, line(8), (0, 0, 0), (0, 1, 0))
    assert (outside.kind, outside.space, outside.count) == ("out of bounds", "global", 2)
    assert outside.at == Place(9, line(9), (3, 0, 0), (230, 0, 0))  # the lower of both threads
    assert "a[i + 1] - a[i]" in outside.at.text
    (note,) = notes
    assert "unspecified launch failure" in note


def test_racecheck_is_read(launch) -> None:
    found, notes = parse(TEXTS["racecheck"], "racecheck", launch)

    first, second = found
    assert not notes
    assert (first.kind, first.count, first.at.line, first.other) == (
        "RAW or WAR",
        508,
        7,
        Place(9, line(9), None, None),
    )
    assert (second.kind, second.count, second.at.line) == ("WAW", 4, 7)


def test_initcheck_is_read(launch) -> None:
    found, _ = parse(TEXTS["initcheck"], "initcheck", launch)

    assert [(each.kind, each.space, each.at.line) for each in found] == [
        ("uninitialized read", "global", 0),
        ("uninitialized read", "shared", 7),
    ]
    assert found[0].at == Place(0, "", (1, 0, 0), (31, 0, 0))


def test_older_releases_name_the_function_behind_the_line(launch) -> None:
    text = (
        "========= ERROR: Race reported between Read access at 0xf10 in past_the_end.cu:9:f(int)\n"
        "=========     and Write access at 0x8a0 in /a/past_the_end.cu:7:f(int) [16 hazards]\n"
    )

    (found,), _ = parse(text, "racecheck", launch)

    assert found.other is not None
    assert (found.at.line, found.other.line, found.count) == (9, 7, 16)


def test_synccheck_is_read(launch) -> None:
    found, _ = parse(TEXTS["synccheck"], "synccheck", launch)

    assert [(each.kind, each.at.line) for each in found] == [
        ("divergent barrier", 8),
        ("invalid mask", 9),
    ]


def test_a_clean_kernel_has_no_finding(launch) -> None:
    assert parse(TEXTS["nothing"], "memcheck", launch) == ([], [])


def test_both_verdicts_are_matched_by_tool_and_line() -> None:
    def finding(tool, line, other=None, kind="") -> Finding:
        places = [each and Place(each, "", None, None) for each in (line, other)]
        return Finding(tool, kind, "", "", "", *places)

    store, race, barrier = (
        finding("memcheck", 9),
        finding("racecheck", 7, 9),
        finding("synccheck", 8, 3),
    )
    turned, waited = finding("racecheck", 9, 7, "RAW or WAR"), finding("synccheck", 8)
    elsewhere = finding("memcheck", 7)

    pairs = sanitizer.side_by_side([store, race, barrier], [waited, turned, elsewhere])

    assert [(each.tool, each.lines, each.memlab, each.sanitizer) for each in pairs] == [
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

    report = sanitizer.sanitize(launch, index=1, seed=7)

    assert report.version == "2026.3.0.0"
    assert {each.tool for each in report.findings} == set(TOOLS)
    assert len(report.findings) == 8
    for tool in TOOLS:
        seen = pickle.loads((tmp_path / f"{tool}.request").read_bytes())
        assert (seen.index, seen.seed, seen.poison) == (1, 7, False)
        words = json.loads((tmp_path / f"{tool}.words").read_text())
        assert {"--print-limit", "--padding"} == {*words} & {*sanitizer._OPTIONS}
        assert not Path(words[-1]).exists()  # nothing is left behind


def test_a_tool_without_a_verdict_is_a_note(install, launch) -> None:
    """A kernel that faults: memcheck says where; under the others, the launch just fails."""
    install(
        "import json, pathlib, sys\n"
        "tool = sys.argv[sys.argv.index('--tool') + 1] if '--tool' in sys.argv else ''\n"
        f"texts = json.loads({json.dumps(TEXTS)!r})\n"
        "text = texts['memcheck' if tool == 'memcheck' else 'nothing']\n"
        "tool and pathlib.Path(sys.argv[sys.argv.index('--log-file') + 1]).write_text(text)\n"
        "sys.exit('memlab: error: tiled: an illegal address was used')\n"
    )

    report = sanitizer.sanitize(launch)

    assert {each.tool for each in report.findings} == {"memcheck"}
    assert report.tools == ("memcheck",)
    failed = [each for each in report.notes if "the launch failed" in each]
    assert [each.split(":")[0] for each in failed] == ["initcheck", "racecheck", "synccheck"]
    assert all("an illegal address" in each for each in failed)


def test_what_was_not_printed_is_said(launch) -> None:
    more = "========= ERROR SUMMARY: 9 errors were not printed. Use --print-limit option\n"

    assert parse(more, "memcheck", launch) == (
        [],
        ["memcheck: ERROR SUMMARY: 9 errors were not printed. Use --print-limit option"],
    )


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
        sanitizer.sanitize(launch, timeout_s=1)

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
            "as in a sandboxed container",
        ),
        ("", "", "gave no verdict (it said nothing)"),
        (
            "========= COMPUTE-SANITIZER\n========= Internal Sanitizer Error: no memory\n",
            "",
            "(Internal Sanitizer Error: no memory)",
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
        sanitizer.sanitize(launch)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_without_it_the_message_says_how_to_get_it(launch, monkeypatch) -> None:
    monkeypatch.setattr(sanitizer, "find", lambda: None)

    with pytest.raises(SanitizerError, match="pip install nvidia-cuda-sanitizer-api"):
        sanitizer.sanitize(launch)


def test_the_options_are_those_of_an_installed_release() -> None:
    """It refuses an option that it does not know before it looks for a GPU."""
    program = sanitizer.find()
    if program is None:
        pytest.skip("Compute Sanitizer is not installed")
    done = subprocess.run([program, "--help"], check=False, capture_output=True, text=True)
    usage = done.stdout
    assert "--padding" in usage
    for tool in TOOLS:
        words = sanitizer.command(program, usage, tool, Path("/dev/null"), ["/bin/true"])
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert "unrecognised" not in done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(("defines", "lines"), [((), [9]), (("FIXED",), [])])
def test_a_real_gpu_and_memlab_agree(defines, lines) -> None:
    if sanitizer.find() is None:
        pytest.skip("Compute Sanitizer is not installed")
    arguments = ("in:f32[1000]", "out:f32[1000]", "i32=1000")
    kernel = OwnKernel(
        str(PAST_THE_END), grid=(4,), block=(256,), args=arguments, defines=tuple(defines)
    )

    theirs = gpu.compute_sanitizer(kernel, {}, device="0", tools=("memcheck",))

    assert [each.at.line for each in theirs.findings] == lines
    assert [each.at.line for each in lab.check(kernel, {}, device="0").findings] == lines
