"""The kernels that can be run by name, as plain text."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memlab.kernels.kernel import Kernel
    from memlab.kernels.user.kernel import UserKernel

MIN_COLUMNS = 40
"""The narrowest text; longer words are not broken."""


def kernels_text(
    catalog: Iterable[Kernel], user: Mapping[str, UserKernel], columns: int = 80
) -> str:
    """List kernels: name, summary and one line per parameter.

    Args:
        catalog: The kernels of the catalog.
        user: The user kernels of `memlab.toml`, by name.
        columns: The width of the text.
    """
    listed = ["\n".join(_lines(kernel, columns)) for kernel in catalog]
    listed += [
        f"{name}\n  In memlab.toml: {printable(kernel.source)}" for name, kernel in user.items()
    ]
    return "\n\n".join(listed)


def _lines(kernel: Kernel, columns: int) -> list[str]:
    parameters = (
        (f"  {parameter.option:<13}", f"{parameter.help} [{parameter.default_label}]")
        for parameter in kernel.parameters
    )
    return [
        kernel.name,
        *(
            line
            for start, text in (("  ", kernel.summary), *parameters)
            for line in wrap(
                text,
                max(columns, MIN_COLUMNS),
                initial_indent=start,
                subsequent_indent=" " * len(start),
                break_long_words=False,
            )
        ),
    ]
