"""A picture and the file with its data, which pictures of several formats share."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from memlab.cli.picture import write_picture
from memlab.errors import UsageError


def write(path: Path, data: str, *, force: bool = False) -> None:
    write_picture(path, Figure(figsize=(1, 1)), data, force=force, quiet=False)


def test_pictures_of_the_same_data_share_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, data = (tmp_path / name for name in ("a.png", "a.svg", "a.csv"))
    write(first, "x\n")
    assert capsys.readouterr().err == f"memlab: wrote {first} and {data}\n"
    write(second, "x\n")
    assert capsys.readouterr().err == f"memlab: wrote {second}; its data is in {data}\n"
    write(second, "x\n", force=True)
    assert capsys.readouterr().err == f"memlab: wrote {second} and {data}\n"
    assert data.read_text() == "x\n"


@pytest.mark.parametrize(("picture", "text"), [("a.png", "y\n"), ("b.png", "x\n")])
def test_a_file_that_is_not_the_data_of_a_picture_is_kept(
    picture: str, text: str, tmp_path: Path
) -> None:
    """It holds other data, or no picture has its name."""
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / picture).touch()
    with pytest.raises(UsageError, match=r"a\.csv exists: add --force"):
        write(tmp_path / "a.svg", "x\n")
    assert not (tmp_path / "a.svg").exists()
