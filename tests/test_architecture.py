"""docs/architecture.md knows every module, and no module that is not there."""

import re
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
CHAPTER = (HOUSE / "docs" / "architecture.md").read_text("utf-8").partition("## Every module")[2]


@pytest.mark.parametrize(
    "room",
    ["memlab", "cli", "roofline", "device", "device/emulator", "device/emulator/checks", "kernels"],
)
def test_every_module_has_its_line(room: str) -> None:
    modules = {each.stem for each in (HOUSE / room).glob("*.py")} - {"__init__"}
    table = CHAPTER.partition(f"**{room}**:")[2].partition("**")[0]
    first_cells = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)

    assert set(re.findall(r"`(\w+)`", " ".join(first_cells))) == modules
