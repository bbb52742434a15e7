"""The form in which results show themselves: one line in a terminal, a report in a notebook.

Results are records of `memlab.device` and `memlab.roofline`, and their reports are written on a
higher floor. `memlab/__init__.py` therefore hands the writer in, and this module only calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Presenter(Protocol):
    """The functions that write a result; the module `memlab.reporting` has them."""

    def one_line(self, result: object) -> str:
        """Describe a result in one line."""
        ...

    def html(self, result: object) -> str:
        """Write the report of a result as a fragment of HTML."""
        ...


_load_presenter: Callable[[], Presenter] | None = None


def set_presenter(load: Callable[[], Presenter]) -> None:
    """Choose the writer of results.

    Args:
        load: Imports and returns the writer. It is called when a result is shown, since importing
            the reports takes time that most programs need not spend.
    """
    global _load_presenter  # noqa: PLW0603 - set once, when the package is imported
    _load_presenter = load


class Presentable:
    """Base of a result. A dataclass that derives from it is declared with `repr=False`."""

    def __repr__(self) -> str:
        """Describe the result in one line."""
        if _load_presenter is None:
            return object.__repr__(self)
        return _load_presenter().one_line(self)

    def _repr_html_(self) -> str | None:
        """Show the report in a notebook; IPython looks for this name."""
        return None if _load_presenter is None else _load_presenter().html(self)
