"""`memlab compare`: real runs and files, formats, gates and exit codes."""

import json
from xml.etree import ElementTree

import pytest

import memlab
from memlab.cli.app import main
from memlab.roofline.store.store import Store


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A store with tiled 8 (`before`), tiled 16 (`after`) and tiled 16 again."""
    path = tmp_path_factory.mktemp("store") / "runs.sqlite3"
    for tile, label in ((8, "before"), (16, "after"), (16, "")):
        memlab.run("tiled", width=64, tile=tile, device="h200", label=label, keep=True, store=path)
    return path


@pytest.fixture
def folder(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_STORE", str(runs))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_tiles_differ_by_what_the_textbook_says(folder, capsys):
    assert main(["compare", "before", "after", "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    figures = {figure["name"]: figure for figure in pair["figures"]}
    # Each element of M and N is loaded width / tile times.
    assert figures["requested_load_bytes"]["relative"] == -0.5
    assert figures["global_load_sectors"]["judgement"] == "better"
    assert pair["code"]["machine_code"] == "different"
    assert pair["time"]["provenance"] == "modelled"
    loads = [line for line in pair["lines"] if "global_sectors" in line["counters"]]
    assert {line["b"]["text"].split("=")[0].strip() for line in loads} >= {"M_tile[ty][tx]"}


def test_the_last_two_by_default_and_files_compare_alike(folder, capsys):
    assert main(["compare"]) == 0
    assert "no code change" in capsys.readouterr().out
    for number, name in ((2, "a.json"), (3, "b.json")):
        assert main(["runs", "show", str(number), "--json"]) == 0
        (folder / name).write_text(capsys.readouterr().out)
    assert main(["compare", "a.json", "./b.json", "--json"]) == 0
    from_files = json.loads(capsys.readouterr().out)
    assert main(["compare", "2", "3", "--json"]) == 0
    from_store = json.loads(capsys.readouterr().out)
    assert from_files == from_store
    assert from_files["pairs"][0]["call"] == "no code change"


def test_a_gate_prints_a_line_each_and_exits_with_1(folder, capsys):
    gate = []
    for condition in ("requested_load_bytes>0%", "occupancy<90%", "spill_loads>0"):
        gate += ["--fail-if", condition]
    code = main(
        ["compare", "after", "before", *gate, "--junit", "j.xml", "--sarif", "s.sarif", "-q"]
    )
    lines = capsys.readouterr().err.splitlines()
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith(
        "memlab: requested_load_bytes>0% holds: tiled width 64, tile 8 on h200: requested_load"
    )
    assert ElementTree.parse(folder / "j.xml").getroot()[0].attrib["failures"] == "1"
    assert len(json.loads((folder / "s.sarif").read_text())["runs"][0]["results"]) == 2  # M and N
    assert main(["compare", "before", "after", *gate]) == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("compare before after --fail-if timee>3%", "did you mean 'time'"),
        ("compare befor", "did you mean 'before'"),
        ("compare before after --threshold 2", "threshold must be"),
        ("compare before after --json --markdown", "choose one"),
        ("compare before after -o x.txt", "cannot tell the format"),
        ("compare before after -o no/x.json", "does not exist"),
        ("compare before none.json", "cannot read none.json"),
    ],
)
def test_wrong_usage_is_one_line(folder, capsys, words, named):
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


def test_an_existing_file_is_kept_unless_overwritten(folder, capsys):
    (folder / "c.md").write_text("mine")
    assert main(["compare", "-o", "c.md"]) == 2
    assert (folder / "c.md").read_text() == "mine"
    assert main(["compare", "-o", "c.md", "--overwrite"]) == 0
    assert (folder / "c.md").read_text().startswith("### memlab: ")


def test_a_sweep_of_files_is_matched_point_by_point(folder, capsys):
    assert main(["runs", "export", "-o", "all.json"]) == 0
    runs = json.loads((folder / "all.json").read_text())
    (folder / "two.json").write_text(json.dumps(runs[:2]))
    naive = memlab.run("naive", width=64, device="h200", keep=True, store=folder / "s.sqlite3")
    assert naive.id == 1
    assert main(["compare", "two.json", "all.json", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["pairs"]) == 2
    assert main(["compare", "all.json", "two.json"]) == 0
    assert "2 pairs" in capsys.readouterr().out


def test_the_picture_comes_with_its_data(folder, capsys):
    assert main(["compare", "before", "after", "--plot", "p.svg", "-q"]) == 0
    assert (folder / "p.svg").read_text().startswith("<?xml")
    assert "global_load_sectors" in (folder / "p.csv").read_text()
    (folder / "q.png").write_text("mine")
    assert main(["compare", "--plot", "q.png", "--force"]) == 2  # it means something else here
    assert "q.png exists: add --overwrite" in capsys.readouterr().err
    assert (folder / "q.png").read_text() == "mine"
    assert main(["compare", "--plot", "p.txt"]) == 2


def test_run_judges_its_own_values(folder, capsys):
    words = ["run", "tiled", "--width", "64", "--no-store", "-q", "--device", "h200"]
    assert main([*words, "--fail-if", "local_load_sectors>0"]) == 0
    assert main([*words, "--fail-if", "fraction_of_roof<99%"]) == 1
    assert "fraction_of_roof<99% holds" in capsys.readouterr().err
    assert main([*words, "--fail-if", "time>+3%"]) == 2


def test_an_empty_store_says_what_to_do(folder, monkeypatch, capsys):
    monkeypatch.setenv("MEMLAB_STORE", str(folder / "empty.sqlite3"))
    assert main(["compare"]) == 2
    assert "'memlab run' makes them" in capsys.readouterr().err
    assert not Store().path.exists()
