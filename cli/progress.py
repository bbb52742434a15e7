"""A progress bar on stderr for work that takes more than a second, in a terminal only."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BAR_DELAY_S = 1.0
"""Work shorter than this shows nothing."""


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Callable[[str, float | None], None] | None]:
    """Show a progress bar during the work, and clear it afterwards.

    Args:
        quiet: Whether to show nothing.

    Yields:
        A callback `report(step, fraction)`, whose fraction is None where it is unknown; or None
        where nothing is shown, since `quiet` is set or stderr is not a terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return

    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=None)
    started = time.monotonic()
    with ExitStack() as drawn:

        def report(step: str, fraction: float | None) -> None:
            total = None if fraction is None else 1.0
            bar.update(task, description=step, completed=fraction or 0.0, total=total)
            if not bar.live.is_started and time.monotonic() - started > BAR_DELAY_S:
                drawn.enter_context(bar)

        yield report
