"""Instructions as the replay of accesses sees them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def step(
    kind: str, space: str = "global", bypass_l1: bool = False, evict_first: bool = False
) -> Any:
    hints = {"bypass_l1": bypass_l1, "evict_first": evict_first}
    row = SimpleNamespace(opcode="", view="", kind=kind, space=space, **hints)
    return SimpleNamespace(row=row, target=-1)
