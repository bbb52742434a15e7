"""docs/architecture.md knows every room, and no room that is not there."""

import re

from paths import REPOSITORY

ROOMS = ("memlab", "cli", "roofline", "device", "kernels", "lessons")
MOST_MODULES = 20


def rooms() -> dict[str, int]:
    """The folders of the product that hold modules, with how many they hold."""
    files = [file for room in ROOMS for file in (REPOSITORY / room).rglob("*.py")]
    folders = [file.parent.relative_to(REPOSITORY).as_posix() for file in files]
    return {folder: folders.count(folder) for folder in folders}


def test_the_page_describes_every_room() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    chapter = page.partition("## Rooms")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `([\w/]+)/` \|", chapter, re.MULTILINE)) == set(rooms())


def test_no_room_is_crowded() -> None:
    crowded = {room: modules for room, modules in rooms().items() if modules > MOST_MODULES + 1}

    assert not crowded, f"more than {MOST_MODULES} modules beside __init__.py"
