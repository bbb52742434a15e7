"""`memlab baseline`: saved launches run again, and what costs more is found at its line."""

import json
import shutil

import pytest
from paths import REPOSITORY

import memlab
from memlab.cli.app import main
from memlab.errors import UsageError

PROJECT = """
[kernels.saxpy]
source = "src/saxpy.cu"
symbols = {N = "4096"}
grid = "ceil(N/256)"
block = 256
args = ["f32=2.0", "f32[N]", "inout:f32[N]", "i32=N"]
"""
DIRECT = (
    "run src/saxpy.cu:saxpy --grid 4 --block 256 --arg f32=2.0 --arg f32[1024] "
    "--arg inout:f32[1024] --arg i32=1024 -q --label direct"
)
STRIDED = "int i = (blockIdx.x * blockDim.x + threadIdx.x) * 33 % n;"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with saxpy in a folder of its own, and an empty store."""
    (tmp_path / "src").mkdir()
    shutil.copy(REPOSITORY / "docs/examples/saxpy.cu", tmp_path / "src")
    (tmp_path / "memlab.toml").write_text(PROJECT)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(folder, change):
    source = folder / "src" / "saxpy.cu"
    source.write_text(change(source.read_text()))


def stride(text):
    return "\n".join(STRIDED if "int i =" in line else line for line in text.split("\n"))


def launches(path):
    return json.loads(path.read_text())["launches"]


def test_what_got_worse_fails_at_its_line(folder, capsys):
    assert main(["baseline", "save", "b.json", "-q"]) == 0
    assert main(["baseline", "check", "b.json", "-q"]) == 0
    assert "no code change" in capsys.readouterr().out
    edit(folder, lambda text: "// a line above\n" + stride(text))
    words = ["baseline", "check", "b.json", "-q", "--sarif", "s.sarif", "--junit", "j.xml"]
    assert main(words) == 1
    errors = capsys.readouterr().err.splitlines()
    assert any("global_load_sectors>+0% holds" in line and "x8" in line for line in errors)
    assert all(line.startswith("memlab: ") for line in errors)
    (results,) = (run["results"] for run in json.loads((folder / "s.sarif").read_text())["runs"])
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert {place["artifactLocation"]["uri"] for place in places} == {"src/saxpy.cu"}
    store_line = (
        (folder / "src/saxpy.cu").read_text().split("\n").index("    y[i] = a * x[i] + y[i];")
    )
    assert store_line + 1 in {place["region"]["startLine"] for place in places}
    # A gate of one's own replaces the default one.
    assert main(["baseline", "check", "b.json", "-q", "--fail-if", "registers_per_thread>+90"]) == 0


def test_a_misspelt_device_is_wrong_usage_and_not_a_finding(folder, capsys):
    assert main(["baseline", "save", "b.json", "-q"]) == 0
    capsys.readouterr()
    assert main(["baseline", "check", "b.json", "-q", "-d", "h2000"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no datasheet 'h2000'" in shown.err
    assert shown.err.count("\n") == 1


def test_a_comment_is_no_change_and_saving_again_changes_no_byte(folder, capsys):
    assert main(["baseline", "save", "b.json"]) == 0
    before = (folder / "b.json").read_text()
    assert main(["baseline", "save", "b.json"]) == 2
    assert "b.json exists: add --overwrite to replace it, or choose another file\n" in (
        capsys.readouterr().err
    )
    assert main(["baseline", "save", "b.json", "--overwrite"]) == 0
    assert (folder / "b.json").read_text() == before
    edit(folder, lambda text: f"// another\n\n{text}")
    assert main(["baseline", "check", "b.json", "--json", "-q"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert pair["call"] == "no code change"
    assert pair["code"]["source"] == "different"


def test_the_file_has_a_counter_a_line_and_no_time_of_day(folder):
    memlab.save_baseline("b.json", memlab.run("tiled", width=64), memlab.run("naive", width=64))
    text = (folder / "b.json").read_text()
    assert [launch["kernel"] for launch in launches(folder / "b.json")] == ["naive", "tiled"]
    assert text.splitlines().count('        "flop_fp32": 524288,') == 2
    for key in ("created_at", '"id"', "durations_s", '"line":', "git_commit"):
        assert key not in text
    with pytest.raises(UsageError, match="exists"):
        memlab.save_baseline("b.json")


def test_a_kernel_by_file_runs_again_by_its_recipe(folder, capsys):
    assert main(DIRECT.split()) == 0
    assert main(["baseline", "save", "b.json", "direct"]) == 0
    (launch,) = launches(folder / "b.json")
    assert launch["recipe"]["kernel"] == "src/saxpy.cu:saxpy"
    capsys.readouterr()
    assert main(["baseline", "check", "b.json"]) == 0
    assert "saxpy in memlab.toml is not in b.json" in capsys.readouterr().err
    assert memlab.check_baseline("b.json").new_kernels == ("saxpy",)


def test_a_launch_that_is_gone_or_broken_fails_and_the_others_run(folder, capsys):
    assert main(DIRECT.split()) == 0
    assert main(["run", "tiled", "--width", "64", "-q", "--label", "tiles"]) == 0
    assert main(["baseline", "save", "b.json", "direct", "tiles"]) == 0
    capsys.readouterr()
    edit(folder, lambda text: text.replace("float*", "flaot*"))
    check = memlab.check_baseline("b.json")
    assert check.failed
    assert len(check.comparison.pairs) == 1
    assert 'identifier "flaot" is undefined' in check.comparison.conditions[0].text
    assert "\n" not in check.comparison.conditions[0].text
    (folder / "src" / "saxpy.cu").unlink()
    (folder / "memlab.toml").unlink()
    assert main(["baseline", "check", "b.json", "--sarif", "s.sarif"]) == 1
    assert "removed: cannot read src/saxpy.cu" in capsys.readouterr().err
    (result,) = json.loads((folder / "s.sarif").read_text())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "src/saxpy.cu", "uriBaseId": "%SRCROOT%"}
    assert main(["baseline", "save", "b.json", "--overwrite"]) == 0
    assert [launch["kernel"] for launch in launches(folder / "b.json")] == ["tiled"]


def test_a_run_of_arrays_or_with_a_wrong_output_is_no_baseline(folder):
    import numpy as np

    x = np.ones(256, np.float32)
    run = memlab.run(
        "src/saxpy.cu:saxpy", grid=1, block=256, args=[2.0, x, memlab.inout(x), x.size]
    )
    with pytest.raises(UsageError, match="cannot be launched again"):
        memlab.save_baseline("b.json", run)
    assert not (folder / "b.json").exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "not JSON"),
        ("[]", "no baseline"),
        ('{"memlab_baseline": 99}', "no baseline"),
        ('{"memlab_baseline": 1, "launches": []}', "lists no launches"),
        ('{"memlab_baseline": 1, "launches": [3]}', "launch 1"),
        ('{"memlab_baseline": 1, "launches": [{}]}', "launch 1"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused_in_one_line(folder, capsys, content, named):
    (folder / "b.json").write_text(content)
    assert main(["baseline", "check", "b.json"]) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


def test_nothing_to_save_says_what_to_do(folder, capsys):
    (folder / "memlab.toml").unlink()
    assert main(["baseline", "save", "b.json"]) == 2
    assert "'memlab run'" in capsys.readouterr().err
    assert main(["baseline", "check", "b.json"]) == 2
    assert "memlab baseline save b.json" in capsys.readouterr().err
    assert main(["baseline"]) == 2
