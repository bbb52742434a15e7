import errno
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from memlab.cli.output import DEFAULT_FORMATS, check_output, chosen_format, write_output
from memlab.errors import UsageError


def test_a_new_file_holds_the_data_and_has_usual_permissions(tmp_path):
    usual = tmp_path / "usual"
    usual.touch()
    for data, content in [("9,81 µm\n", "9,81 µm\n".encode()), (b"\x89PNG\r\n", b"\x89PNG\r\n")]:
        path = tmp_path / str(len(content))
        write_output(path, data, overwrite=False)
        assert path.read_bytes() == content
        assert path.stat().st_mode == usual.stat().st_mode
    assert len([*tmp_path.iterdir()]) == 3


def test_an_existing_file_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "figures.csv"
    path.write_text("precious")
    path.chmod(0o640)
    for refuse in (lambda: check_output(path, False), lambda: write_output(path, "new", False)):
        with pytest.raises(UsageError, match=r"figures\.csv exists: add --overwrite"):
            refuse()
        assert path.read_text() == "precious"
    check_output(path, overwrite=True)
    write_output(path, "new", overwrite=True)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("links", [True, False])
def test_of_two_writers_at_once_none_loses_its_file(tmp_path, monkeypatch, links):
    path, wait = tmp_path / "figures.csv", os.fsync

    def and_meanwhile(descriptor):
        monkeypatch.setattr(os, "fsync", wait)
        write_output(path, "theirs", overwrite=False)

    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(os, "fsync", and_meanwhile)
    with pytest.raises(UsageError, match=r"figures\.csv exists: add --overwrite"):
        write_output(path, "ours", overwrite=False)
    assert path.read_text() == "theirs"
    assert [*tmp_path.iterdir()] == [path]


def test_a_path_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    for path, message in [
        (tmp_path / "lsot" / "a.png", f"mkdir -p {tmp_path / 'lsot'}"),
        (tmp_path / "file" / "a.png", "does not exist"),
        (tmp_path, "is a folder"),
        (tmp_path / ("x" * 300), "File name too long"),
        (Path("-"), "neither stdout nor a file"),
    ]:
        with pytest.raises(UsageError, match=message) as refusal:
            check_output(path, overwrite=True)
        assert "\n" not in str(refusal.value)
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]


def test_a_name_as_long_as_names_can_be_is_written(tmp_path):
    write_output(tmp_path / ("x" * 255), "data", overwrite=False)


CSV_ALONE = {".csv": "csv"}


@pytest.mark.parametrize(
    ("as_json", "as_csv", "name", "formats", "chosen"),
    [
        (False, False, None, DEFAULT_FORMATS, "report"),
        (True, False, None, DEFAULT_FORMATS, "json"),
        (False, False, "a.CSV", DEFAULT_FORMATS, "csv"),
        (False, True, "a.csv", DEFAULT_FORMATS, "csv"),
        (True, False, "a.dat", DEFAULT_FORMATS, "json"),
        (True, False, "a.csv", DEFAULT_FORMATS, "--json was given, and a.csv is named as CSV"),
        (False, True, "a.json", DEFAULT_FORMATS, "--csv was given, and a.json is named as JSON"),
        (True, False, "a.html", DEFAULT_FORMATS | {".html": "html"}, "a.html is named as HTML"),
        (False, False, "a.json", CSV_ALONE, "this command writes no JSON, for a.json: use .csv"),
        (False, False, "a.dat", CSV_ALONE, "use .csv, or add --csv"),
        (False, False, "a.dat", DEFAULT_FORMATS, "use .json or .csv, or add --json or --csv"),
        (True, True, None, DEFAULT_FORMATS, "both given"),
        (True, False, "-", DEFAULT_FORMATS, "leave --output out, or name a file"),
    ],
)
def test_the_format_is_what_option_and_extension_both_say(as_json, as_csv, name, formats, chosen):
    output = None if name is None else Path(name)
    if chosen in ("report", "json", "csv"):
        assert chosen_format(as_json, as_csv, output, formats) == chosen
    else:
        with pytest.raises(UsageError, match=re.escape(chosen)):
            chosen_format(as_json, as_csv, output, formats)


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_what_fails_halfway_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, fault):
    path = tmp_path / "figures.csv"
    path.write_text("precious")

    def fail(_descriptor):
        raise fault

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UsageError if isinstance(fault, OSError) else KeyboardInterrupt):
        write_output(path, "new", overwrite=True)
    assert path.read_text() == "precious"
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_is_followed_only_when_asked(tmp_path):
    (tmp_path / "data").mkdir()
    link = tmp_path / "latest.csv"
    link.symlink_to(Path("data") / "figures.csv")
    for refused in (check_output, lambda path, force: write_output(path, "1", force)):
        with pytest.raises(UsageError, match=r"latest\.csv exists: add --overwrite"):
            refused(link, False)  # to a file that is not there yet
    assert not link.exists()
    write_output(link, "1", overwrite=True)
    write_output(link, "2", overwrite=True)
    assert link.is_symlink()
    assert (tmp_path / "data" / "figures.csv").read_text() == "2"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_output(pipe, "data", overwrite=False)
    reader.join()
    assert received == ["data"]
    assert pipe.is_fifo()
