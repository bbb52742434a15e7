"""The Python of README.md and docs/*.md runs in a Jupyter kernel, which shows what it should."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

pytestmark = pytest.mark.slow

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

RESULTS = """
import memlab

run = memlab.run("tiled", width=64, tile=16)
"""
SHOWN = {
    "run": "text/html",
    "memlab.analyze('transpose', width=64)": "text/html",
    "memlab.check('tiled', width=20, tile=4)": "text/html",
    "memlab.trace('tiled', width=4, tile=2)": "text/html",
    "memlab.occupancy('tiled', tile=16)": "text/html",
    "memlab.devicequery('h200')": "text/html",
    "memlab.explain('wavefront')": "text/html",
    "memlab.kernels()": "text/html",
    "memlab.doctor()": "text/html",
    "memlab.frame([run])": "text/html",
    "memlab.sweep('tiled', width=64, tile=[8, 16])": "text/html",
    "memlab.roofline(run)": "image/png",
    "memlab.roofline(run).figure()": "image/png",
}
"""What each result shows in a notebook besides its line of text."""


def pages() -> dict[str, list[str]]:
    """The blocks of Python by page; those that use memlab as a user does."""
    files = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    files += sorted((REPOSITORY / "docs" / "gallery").glob("*.md"))
    blocks = {
        file.relative_to(REPOSITORY).as_posix(): BLOCK.findall(file.read_text("utf-8"))
        for file in files
    }
    return {
        page: code for page, code in blocks.items() if any("import memlab\n" in b for b in code)
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples' files, for a kernel that imports this memlab."""
    shutil.copytree(REPOSITORY / "docs" / "examples", tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "jupyter"))
    return tmp_path


def outputs(cells: list[str], folder: Path) -> list[list[dict[str, Any]]]:
    """Run cells as a notebook; the data that each shows, by MIME type.

    Raises:
        CellExecutionError: One failed.
    """
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [
        [dict(output.data) for output in cell.outputs if "data" in output]
        for cell in notebook.cells
    ]


def test_there_is_python_in_the_readme() -> None:
    assert len(pages()["README.md"]) >= 2


@pytest.mark.parametrize("page", pages())
def test_the_python_of_a_page_runs_in_a_notebook(page: str, folder: Path) -> None:
    if page == "docs/triton.md" and os.environ.get("MEMLAB_TRITON") != "required":
        pytest.importorskip("triton", reason="Triton is not installed")
    shown = outputs(pages()[page], folder)

    assert all(len(data) <= 1 for data in shown)
    if page == "README.md":
        assert any("image/png" in data for (data,) in filter(None, shown))
    assert not (folder / "runs.sqlite3").exists(), "nothing is stored unless asked"


def test_every_result_is_a_line_of_text_and_a_report_or_a_picture(folder: Path) -> None:
    shown = outputs([RESULTS, *SHOWN], folder)

    for (code, kind), (data,) in zip(SHOWN.items(), shown[1:], strict=True):
        assert data.get(kind), code
        if "frame" not in code:
            assert "\n" not in data["text/plain"], code
            assert len(data["text/plain"]) < 200, code
