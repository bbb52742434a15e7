"""What `make` sets up, and what it runs whatever its user has recorded before."""

import shlex
import shutil
import subprocess

import pytest
from paths import REPOSITORY

ROOT = REPOSITORY


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


VENV = """#!/bin/sh
case $1 in -m) mkdir -p .venv/bin; ln -s "$PIP" .venv/bin/pip;; esac
"""
PIP = """#!/bin/sh
echo "$@" >>asked
case "$*" in *gpu*) echo "PyCUDA says why"; exit $BUILT;; esac
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("gpu", "found", "built", "said"),
    [
        (False, [], 1, None),
        (True, ["g++", "nvcc"], 0, None),
        (True, [], 1, "not found: g++ nvcc"),
        (True, ["g++"], 1, "not found: nvcc"),
        (True, ["g++", "nvcc"], 1, "not found: none"),
    ],
)
def test_a_pycuda_that_cannot_be_built_stops_nothing(tmp_path, gpu, found, built, said):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "make", "mkdir", "touch", "ln", "date"):
        (tools / name).symlink_to(shutil.which(name))
    scripts = {"python": VENV, "pip": PIP} | dict.fromkeys(found, "#!/bin/sh\n")
    for name, text in (scripts | ({"nvidia-smi": "#!/bin/sh\n"} if gpu else {})).items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    told = subprocess.run(
        ["make", "PYTHON=python", f"CUDA={tmp_path}/nowhere", ".venv/installed"],
        cwd=tmp_path,
        env={"PATH": str(tools), "PIP": str(tools / "pip"), "BUILT": str(built)},
        capture_output=True,
        text=True,
        check=True,
    )
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[1] == "install -qq --editable ."
    assert asked[2:] == ["install -qq --editable .[gpu]"] * gpu
    assert (tmp_path / ".venv" / "installed").exists()
    if said is None:
        assert told.stderr == ""
    else:
        assert told.stderr.count("\n") == 1
        assert said in told.stderr
        assert (tmp_path / "build" / "pycuda.log").read_text() == "PyCUDA says why\n"
