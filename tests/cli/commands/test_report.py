"""`memlab report` end to end: which runs the page shows, and what stands in the way."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import memlab
from memlab.cli.app import main
from memlab.roofline.documents.runs import run_document
from memlab.roofline.store.store import Store
from memlab.roofline.units import si_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlab.roofline.run import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "store.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    return tmp_path


@pytest.fixture
def stored(folder: Path, make_run: Callable[..., Run]) -> list[Run]:
    """Runs 1 and 3 of one launch, 2 and 4 of others."""
    store = Store()
    kernels = ("tiled", "naive", "tiled", "row-sum")
    return [store.add(make_run(kernel=kernel)) for kernel in kernels]


def data(path: str) -> dict:
    text = Path(path).read_text("utf-8")
    start = text.index(">", text.index('id="memlab-data"')) + 1
    return json.loads(text[start : text.index("</script>", start)])


def keys(path: str = "report.html") -> list[str]:
    return [run["key"] for run in data(path)["runs"]]


def test_the_newest_run_of_each_launch_is_shown(
    stored: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report"]) == 0
    assert keys() == ["2", "3", "4"]
    assert capsys.readouterr() == ("", "memlab: wrote report.html: 3 runs\n")
    # The command can be repeated: the page is memlab's own.
    assert main(["report", "-q", "--kernel", "*i*", "--last", "1"]) == 0
    assert keys() == ["3"]
    assert main(["report", "-q", "1", "3", "1", "--title", "Two <b> runs"]) == 0
    assert keys() == ["1", "3"]
    assert "<h1>Two &lt;b&gt; runs</h1>" in Path("report.html").read_text("utf-8")


def test_runs_of_a_file_are_shown_with_their_roofs(stored: list[Run], folder: Path) -> None:
    Path("other.json").write_text(json.dumps([run_document(run) for run in stored[:2]]))
    assert main(["report", "other.json", "-o", "page.htm", "-q"]) == 0
    page = data("page.htm")
    assert [run["kernel"] for run in page["runs"]] == ["tiled", "naive"]
    roofs = {roof["key"]: roof["value"] for roof in page["devices"][0]["roofs"]}
    assert roofs["dram"] == pytest.approx(4.8e12, rel=0.01)


def test_runs_of_an_unknown_device_have_no_roofs(folder: Path, make_run) -> None:
    document = run_document(make_run())
    document["device"] |= {"name": "GPU of another", "key": "nowhere/my.toml"}
    Path("other.json").write_text(json.dumps(document))
    assert main(["report", "other.json", "-q"]) == 0
    assert data("report.html")["devices"][0]["roofs"] == []


def test_a_source_is_shown_whole_only_if_it_is_the_one_that_ran(folder: Path) -> None:
    source = "// above\n__global__ void f(float* x) {\n\n  x[threadIdx.x] = 1.0f;\n}\n"
    Path("f.cu").write_text(source)
    launch = ["--grid", "1", "--block", "32", "--arg", "out:f32[32]"]
    assert main(["run", "f.cu:f", *launch, "-q", "-o", "run.json"]) == 0
    assert main(["report", "-q"]) == 0
    assert "// above" in Path("report.html").read_text("utf-8")
    Path("f.cu").write_text(source.replace("above", "other"))
    assert main(["report", "-q"]) == 0
    text = Path("report.html").read_text("utf-8")
    assert "// above" not in text
    assert "// other" not in text
    assert "x[threadIdx.x] = 1.0f;" in text  # the run itself holds the line


def test_run_writes_its_page_with_machine_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "tiled", "--width", "64", "-o", "run.html"]) == 0
    assert capsys.readouterr() == ("", "memlab: wrote run.html\n")
    text = Path("run.html").read_text("utf-8")
    assert "FFMA" in text
    assert 'href="#run-1-L33"' in text  # instructions lead to the line of the inner product
    assert 'id="run-1-L33"' in text
    assert len(Store().runs()) == 1


def test_python_has_the_same_page(stored: list[Run], folder: Path) -> None:
    page = memlab.report_page(*stored[:2])
    page.save("page.html")
    assert keys("page.html") == ["1", "2"]
    assert repr(page).startswith("<ReportPage tiled, naive: 2 runs: 2 runs, ")
    assert page._repr_html_().startswith("<iframe srcdoc=")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-o report.pdf", "a report is an HTML page, got report.pdf"),
        ("-o nowhere/report.html", "the folder nowhere does not exist"),
        ("-o taken.html", "taken.html exists: add --overwrite"),
        ("99", "has no run 99"),
        ("none.json", "cannot read none.json"),
        ("--kernel nope", "no such runs in"),
        ("1 --last 2", "last chooses among the stored runs, and runs were named too"),
    ],
)
def test_what_stands_in_the_way_is_said_in_one_line(
    words: str, message: str, stored: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("taken.html").write_text("mine")
    assert main(["report", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1
    assert Path("taken.html").read_text() == "mine"


def test_a_page_of_someone_else_is_kept(stored: list[Run]) -> None:
    Path("report.html").write_text("<!DOCTYPE html><title>mine</title>")
    assert main(["report"]) == 2
    assert "mine" in Path("report.html").read_text()


def test_an_empty_store_says_how_runs_are_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report"]) == 2
    assert "'memlab run' makes them" in capsys.readouterr().err


def test_a_sweep_has_its_picture_and_ranking(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "sweep tiled --tile 4,8 --width 32,64 -q --name tiles -o sweep.html"
    assert main(words.split()) == 0
    assert main(["report", "tiles", "-q"]) == 0
    for path in ("sweep.html", "report.html"):
        text = Path(path).read_text("utf-8")
        section = text[text.index("<h2>Sweep: tiles</h2>") :]
        assert "4 of 4 points done" in section
        assert "varied: width (2), tile (2)" in section or "tile (2), width (2)" in section
        assert 'src="data:image/svg+xml;base64,' in section
        links = section[: section.index("</table>")].count(">details</a>")
        assert links == len(keys(path)) == 4
    # The fastest stands first, and of the store too.
    times = [run.measurement.time.median_s for run in memlab.runs(label="tiles")]
    assert data("sweep.html")["runs"][0]["time"] == f"~{si_text(min(times), 's')}"


def test_a_sweep_that_took_points_over_is_shown_whole(folder: Path) -> None:
    for tiles, name in (("4,8", "first"), ("4,8,16", "second")):
        words = f"sweep tiled --tile {tiles} --width 32,64 -q --name {name}"
        assert main(words.split()) == 0
    for words, shown in (
        ("report second", ["second: 6 of 6"]),
        ("report first", ["first: 4 of 4"]),
        ("report", ["first: 4 of 4", "second: 6 of 6"]),
        ("report second first", ["second: 6 of 6", "first: 4 of 4"]),
        ("report 1 2", ["first: 2 of 2"]),
    ):
        assert main([*words.split(), "-q", "-o", "page.html", "--force"]) == 0
        text = Path("page.html").read_text("utf-8")
        found = re.findall(r"<h2>Sweep: (.*)</h2>\n<p class=\"quiet\">(\d+ of \d+)", text)
        assert [": ".join(each) for each in found] == shown
        assert not [run["label"] for run in data("page.html")["runs"] if "first" in run["label"]]


def test_a_kernel_of_integers_has_a_point(folder: Path) -> None:
    Path("mix.cu").write_text(
        "__global__ void mix(unsigned* x, int n) {\n"
        "  unsigned i = threadIdx.x, v = x[i], w = i;\n"
        "  for (int k = 0; k < n; ++k) { v = v * 1664525u + w; w ^= v >> 7; }\n"
        "  x[i] = v ^ w;\n}\n"
    )
    launch = ["--grid", "132", "--block", "256", "--arg", "inout:u32[256]", "--arg", "i32=2000"]
    assert main(["run", "mix.cu:mix", *launch, "-q", "-o", "mix.html"]) == 0
    assert data("mix.html")["runs"][0]["operation"] == "OP"
    assert '<section id="roofline" class=""' in Path("mix.html").read_text("utf-8")
