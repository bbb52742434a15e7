"""The wheel: what it holds, and what the package index reads in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from importlib import util
from pathlib import Path

import pytest
from paths import REPOSITORY


def test_links_of_the_readme_become_absolute() -> None:
    spec = util.spec_from_file_location("setup_of_memlab", REPOSITORY / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    text = "[a](docs/a.md) ![p](images/p.png) [b](https://b.org/c) [d](#e) `x[i](y)`"

    assert setup.absolute_links(text, "https://home.org/") == (
        "[a](https://home.org/docs/a.md) ![p](https://home.org/images/p.png) "
        "[b](https://b.org/c) [d](#e) `x[i](https://home.org/y)`"
    )


@pytest.mark.slow
def test_the_wheel_holds_everything_and_links_home(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:  # a copy, in which the build leaves its folders
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, target, follow_symlinks=False)
    built = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
    subprocess.run([*built, "-q", "-w", tmp_path], cwd=tree, check=True)

    (wheel,) = tmp_path.glob("memlab-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        (metadata,) = (name for name in held if name.endswith("/METADATA"))
        message = message_from_string(archive.read(metadata).decode())

    rooms = ("cli", "device", "kernels", "lessons", "roofline", "memlab")
    packaged = {
        f"memlab/{name.removeprefix('memlab/')}"
        for name in listed
        if name.startswith(tuple(f"{room}/" for room in rooms)) and (REPOSITORY / name).is_file()
    }
    packaged |= {
        f"memlab/lessons/{name.removeprefix('docs/').replace('gallery', 'pages')}"
        for name in listed
        if re.match(r"docs/(examples/|gallery/[^/]+\.md)", name)
    }
    assert not packaged - held
    assert "memlab/py.typed" in held
    urls = dict(line.split(", ") for line in message.get_all("Project-URL", []))
    assert {"Source", "Documentation", "Changelog", "Issues"} <= set(urls)
    links = re.findall(r"\]\(([^)]+)\)", message.get_payload())
    assert len(links) >= 5
    assert all(link.startswith(f"{urls['Source']}/") for link in links)
