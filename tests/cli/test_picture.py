"""A picture and the file with its data: what is replaced, and what stays."""

import io
import itertools
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from memlab.cli.picture import check_picture, write_picture
from memlab.errors import UsageError
from memlab.roofline.plots.figure import is_memlab_picture

FIGURE = Figure(figsize=(1, 1))


def write(path: Path, data: str, *, overwrite: bool = False) -> None:
    write_picture(path, FIGURE, data, overwrite=overwrite, quiet=False)


def test_what_memlab_made_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "a.csv"
    for suffix in ("png", "svg", "pdf"):
        for rows in ("1\n", "2\n"):
            picture = tmp_path / f"a.{suffix}"
            check_picture(picture, overwrite=False)
            write(picture, f"x,y\n{rows}")
            assert capsys.readouterr().err == f"memlab: wrote {picture} and {data}\n"
            assert data.read_text() == f"x,y\n{rows}"


def test_figures_in_json_are_replaced_by_the_same_figures(tmp_path: Path) -> None:
    picture, data = tmp_path / "a.png", tmp_path / "a.json"
    for text in ('{"rates": 1}', '{"rates": 2}'):
        write_picture(picture, FIGURE, text, overwrite=False, quiet=True, data_suffix=".json")
    assert data.read_text() == '{"rates": 2}'
    for other in ('{"rates": 1, "mine": 2}', "[1]", "{"):
        data.write_text(other)
        with pytest.raises(UsageError, match=r"a\.json exists: add --overwrite"):
            write_picture(picture, FIGURE, text, overwrite=False, quiet=True, data_suffix=".json")
        assert data.read_text() == other


def other_pictures() -> list[bytes]:
    """Pictures that another program made, in all formats, and what is none."""
    pictures = [b"mine", b"", b"\x89PNG\r\n\x1a\n memlab", b"memlab tEXtSoftware\0memlab"]
    for image_format in ("png", "svg", "pdf"):
        file = io.BytesIO()
        Figure(figsize=(1, 1)).savefig(file, format=image_format)
        pictures.append(file.getvalue())
    drawing = b"<svg xmlns:dc='dc'><metadata><dc:title>memlab</dc:title></metadata></svg>"
    return [*pictures, b"<?xml version='1.0'?>" + drawing]


@pytest.mark.parametrize("content", other_pictures(), ids=itertools.count())
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_of_someone_else_is_kept(tmp_path: Path, suffix: str, content: bytes) -> None:
    picture = tmp_path / f"a.{suffix}"
    picture.write_bytes(content)
    for work in (lambda: check_picture(picture, overwrite=False), lambda: write(picture, "x\n")):
        with pytest.raises(UsageError, match=rf"a\.{suffix} exists: add --overwrite"):
            work()
    assert picture.read_bytes() == content
    write(picture, "x\n", overwrite=True)
    assert picture.read_bytes() != content


def test_data_of_someone_else_is_kept(tmp_path: Path) -> None:
    """It has another header; no picture is written without its data."""
    picture, data = tmp_path / "a.svg", tmp_path / "a.csv"
    data.write_text("y\n1\n")
    with pytest.raises(UsageError, match=r"a\.csv exists: add --overwrite"):
        write(picture, "x\n1\n")
    with pytest.raises(UsageError, match=r"a\.csv exists: add --overwrite"):
        check_picture(picture, overwrite=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_link_to_an_own_picture_stays_a_link(tmp_path: Path) -> None:
    picture, link = tmp_path / "a.png", tmp_path / "b.png"
    write(picture, "x\n")
    link.symlink_to(picture)
    write(link, "x\n")
    assert link.is_symlink()
    assert is_memlab_picture(picture.read_bytes())
