"""`make roofline` runs the ladder, whatever its user has recorded before."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_the_main_job_has_an_empty_store_of_its_own():
    told = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "roofline"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    *_, emptied, drawn = told.stdout.strip().splitlines()
    words = shlex.split(drawn)
    assert words[1] == "roofline"
    store = words[words.index("--store") + 1]
    assert shlex.split(emptied)[-3:] == ["rm", "-f", f"{store}*"]
    assert store.startswith("build/")
    assert "build/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
