import csv
import errno
import io
import json
import os
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from memlab.cli.app import main
from memlab.cli.commands import runs as runs_module
from memlab.cli.commands.runs import runs_app
from memlab.device.measurement import DeviceSummary
from memlab.errors import UsageError
from memlab.roofline.documents.runs import run_document
from memlab.roofline.store.store import Store

GPU = DeviceSummary("NVIDIA H200", "cuda", (9, 0), "cuda:0")


@pytest.fixture
def store(tmp_path, monkeypatch, make_run):
    """Three runs: naive and tiled, modelled; the kernel with the longest name, measured."""
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("COLUMNS", "80")
    store = Store()
    store.add(make_run(kernel="naive"))
    store.add(make_run())
    run = make_run(kernel="tiled-dynamic", device=GPU)
    measured = replace(run.measurement.time, provenance="measured", samples=30)
    store.add(make_run(kernel="tiled-dynamic", device=GPU, time=measured))
    return store


def memlab_runs(*words):
    return CliRunner().invoke(runs_app, list(words), catch_exceptions=False)


def refused(*words):
    with pytest.raises(UsageError) as refusal:
        memlab_runs(*words)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_the_list_fits_80_columns_and_tells_modelled_from_measured(store):
    result = memlab_runs()
    lines = result.stdout.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    words = {line.split()[0]: line.split() for line in lines if line[:2].strip().isdigit()}
    assert list(words) == ["1", "2", "3"]
    assert words["1"][1:3] == ["2026-07-14", "naive"]
    assert {"h200", "~2.25", "7,640", "L1", "81%", "ok"} <= set(words["1"])
    assert {"tiled-dynamic", "cuda:0", "2.25"} <= set(words["3"])
    assert "modelled" in result.stderr
    assert "invalid" not in result.stderr
    assert memlab_runs("list").stdout == result.stdout


def test_a_narrow_terminal_still_tells_which_run_is_which(store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    heading, *lines = memlab_runs().stdout.splitlines()
    assert all(len(line.rstrip()) <= 40 for line in [heading, *lines])
    assert heading.split() == ["id", "kernel", "time", "roof", "ok"]
    assert next(line.split() for line in lines if line.startswith(" 1"))[:2] == ["1", "naive"]


def test_what_is_wrong_with_a_run_is_seen_in_the_list(store, make_run):
    failed = replace(make_run().measurement.verification, status="failed")
    impossible = replace(make_run().placement, fraction_of_ceiling=1.07)
    store.add(replace(make_run(verification=failed), placement=impossible))
    result = memlab_runs()
    assert "107%! NO" in result.stdout
    assert "above a physical limit" in result.stderr


def test_a_kernel_without_flop_has_no_rate_and_bounds_have_names(store, make_run):
    run = make_run()
    placement = replace(run.placement, flop_per_s=0.0, bound="int_alu")
    store.add(replace(run, placement=placement))
    last = memlab_runs("--last", "1").stdout
    assert "-  INT" in last or "- INT ALU" in last
    assert "int_alu" not in last
    assert " 0 " not in last


def test_sizes_that_differ_are_all_shown(store, make_run):
    store.add(make_run(parameters={"m": 100, "k": 57, "n": 75, "tile": 57}))
    shown = " ".join(memlab_runs("--kernel", "tiled").stdout.split())
    for parameter in ("m 100", "k 57", "n 75", "tile 57"):
        assert parameter in shown


def test_filters_choose(store):
    assert [run["id"] for run in json.loads(memlab_runs("--json").stdout)] == [1, 2, 3]
    assert [run["id"] for run in json.loads(memlab_runs("--json", "-d", "0").stdout)] == [3]
    chosen = memlab_runs("export", "--device", "h200", "--kernel", "tiled").stdout
    assert [run["id"] for run in json.loads(chosen)] == [2]


@pytest.mark.parametrize("place", ["before", "after"])
def test_filters_hold_before_and_after_the_sub_command(store, place):
    words = ["--kernel", "t*", "--last", "1", "--since", "2026-07-14"]
    command = ["export", *words] if place == "after" else [*words, "export"]
    assert [run["id"] for run in json.loads(memlab_runs(*command).stdout)] == [3]


def test_runs_are_labelled_and_found_by_it(store):
    assert "label" not in memlab_runs().stdout
    assert "run 1 has the label before" in memlab_runs("label", "1", "before").stderr
    memlab_runs("label", "2", "before")
    memlab_runs("note", "before", "the newest of them")
    assert [store.get(number).identity.note for number in (1, 2)] == ["", "the newest of them"]
    found = json.loads(memlab_runs("--label", "before", "--json").stdout)
    assert [run["id"] for run in found] == [1, 2]
    heading, first, *_ = memlab_runs().stdout.splitlines()
    assert heading.split()[:2] == ["id", "label"]
    assert first.split()[:2] == ["1", "before"]
    assert json.loads(memlab_runs("show", "before", "--json").stdout)["id"] == 2
    memlab_runs("delete", "--all", "--label", "before", "--yes")
    assert store.ids() == [3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--since", "yesterday"), "got 'yesterday': use 2h, 3d, 2026-11-01"),
        (("--last", "0"), "got '0': use --last 5"),
        (("label", "1", "2"), "a label is neither a whole number"),
        (("label", "run.json", "x"), "only stored runs are changed"),
        (("show", "befor"), "'befor'"),
        (("delete", "1", "--last", "1"), "--last 1 and numbers were both given"),
    ],
)
def test_bad_choices_are_refused(store, words, message):
    assert message in refused(*words)
    assert store.ids() == [1, 2, 3]


LONG = "filter-constant-divergent"


@pytest.fixture
def long_names(store, make_run):
    """The longest name of a kernel and of a bound, with a label."""
    run = make_run(kernel=LONG, parameters={"n": 4194304})
    placement = replace(run.placement, bound="constant cache")
    identity = replace(run.identity, label="before the change")
    store.add(replace(run, placement=placement, identity=identity))
    store.add(make_run(kernel="saxpy.cu:" + "k" * 40, parameters={"grid": "16384", "block": "256"}))
    return store


@pytest.mark.parametrize("columns", [60, 70, 80, 90, 120])
def test_names_times_and_verdicts_are_whole(long_names, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    heading, *lines = (line.rstrip() for line in memlab_runs().stdout.splitlines())
    assert all(len(line) <= columns for line in [heading, *lines])
    rows = [line for line in lines if line[:2].strip().isdigit()]
    assert len(rows) == 5
    assert all(row.endswith("81% ok") for row in rows)
    assert all("2.25 ms" in row for row in rows)
    assert sum(LONG in line for line in lines) == 1
    assert sum("n 4194304" in line for line in lines) == 1  # no line ends within a parameter


def test_columns_are_left_out_before_parameters_fold(store, make_run):
    run = make_run(parameters={"width": 512, "tile": 16})
    run = replace(run, identity=replace(run.identity, label="after-a100"))
    number = store.add(run).id
    heading, row = memlab_runs("--last", "1").stdout.splitlines()
    assert "GFLOP/s" not in heading
    assert f"{number} after-a100" in row
    assert "tiled width 512, tile 16 " in row


def test_in_a_pipe_a_run_is_one_line(long_names, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    heading, *rows = (" ".join(line.split()) for line in memlab_runs().stdout.splitlines())
    assert len(rows) == 5
    assert f"{LONG} n 4194304 h200" in rows[3]
    assert "before the change" in rows[3]
    assert "constant cache" in rows[3]
    assert "k" * 40 + " grid 16384, block 256 " in rows[4]
    assert heading.split() == [
        *("id", "label", "date", "kernel", "device", "time", "GFLOP/s", "bound", "roof", "ok")
    ]


def test_nothing_found_is_said_on_stderr_and_the_data_stays_readable(store):
    result = memlab_runs("--kernel", "tield")
    assert result.stdout == ""
    assert "no run in" in result.stderr
    assert "--kernel tield" in result.stderr
    assert json.loads(memlab_runs("--kernel", "tield", "--json").stdout) == []
    header, *rows = csv.reader(io.StringIO(memlab_runs("export", "--csv", "-d", "t4").stdout))
    assert "median_s" in header
    assert rows == []


def test_show_gives_one_run(store):
    assert json.loads(memlab_runs("show", "2", "--json").stdout) == run_document(store.get(2))
    assert "tiled" in memlab_runs("show", "2").stdout
    assert "no run 7" in refused("show", "7")
    assert refused("delete", "x") == (
        "a run's number is a whole number, got 'x': 'memlab runs' lists them"
    )


def test_export_writes_a_file_whole_and_only_over_another_when_asked(store, tmp_path):
    path = tmp_path / "runs.csv"
    result = memlab_runs("export", "-o", str(path))
    assert result.stdout == ""
    assert f"wrote 3 runs to {path}" in result.stderr
    rows = [*csv.DictReader(path.open())]
    assert [(row["kernel"], float(row["median_s"])) for row in rows] == [
        ("naive", 0.00225),
        ("tiled", 0.00225),
        ("tiled-dynamic", 0.00225),
    ]
    assert "--overwrite" in refused("export", "-o", str(path))
    assert "choose" in refused("export", "-o", str(path), "--json", "--overwrite")
    path = tmp_path / "runs.json"
    path.write_text("older")
    memlab_runs("export", "-o", str(path), "--overwrite")
    assert json.loads(path.read_text()) == [run_document(run) for run in store.runs()]


def test_an_export_that_cannot_be_written_is_printed(store, tmp_path, monkeypatch, capsys):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["runs", "export", "-o", str(tmp_path / "runs.json")]) == 2
    out, err = capsys.readouterr()
    assert [run["id"] for run in json.loads(out)] == [1, 2, 3]
    assert "No space left" in err
    assert "wrote" not in err


def test_a_name_without_end_fills_no_screen(store, make_run):
    store.add(make_run(kernel="k" * 2**20, parameters={"grid": "1" * 2**20}))
    assert len(memlab_runs().stdout) < 20_000


def test_delete_takes_what_was_named(store):
    assert "which runs?" in refused("delete")
    assert "which runs?" in refused("delete", "1", "--all")
    assert "no runs 8, 9" in refused("delete", "8", "1", "9")
    assert "--device" in refused("--device", "h200", "delete", "3")
    assert "--kernel tiled" in refused("delete", "3", "--kernel", "tiled")
    assert len(store.runs()) == 3
    assert "deleted 2 runs" in memlab_runs("delete", "1", "3", "1").stderr
    assert [run.id for run in store.runs()] == [2]


def test_delete_all_asks_first(store, monkeypatch):
    assert "add --yes" in refused("delete", "--all")
    monkeypatch.setattr(runs_module, "_is_confirmed", lambda question: "3 runs" not in question)
    assert "nothing was deleted" in memlab_runs("delete", "--all").stderr
    assert len(store.runs()) == 3
    memlab_runs("--device", "h200", "delete", "--all", "--yes")
    assert [run.id for run in store.runs()] == [3]
    memlab_runs("delete", "--all", "--yes")
    assert store.runs() == []


def test_an_option_before_the_sub_command_holds_for_it(store, tmp_path, make_run):
    other = Store(tmp_path / "other.sqlite3")
    other.add(make_run())
    memlab_runs("--store", str(other.path), "delete", "1")
    assert other.runs() == []
    assert len(store.runs()) == 3
