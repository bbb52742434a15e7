"""The kernels that can be run by name, as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memlab.kernels.kernel import Kernel
    from memlab.kernels.user.kernel import UserKernel


def kernels_text(catalog: Iterable[Kernel], user: Mapping[str, UserKernel]) -> str:
    """List kernels: name, summary and one line per parameter.

    Args:
        catalog: The kernels of the catalog.
        user: The user kernels of `memlab.toml`, by name.
    """
    listed = ["\n".join(_lines(kernel)) for kernel in catalog]
    listed += [
        f"{name}\n  In memlab.toml: {printable(kernel.source)}" for name, kernel in user.items()
    ]
    return "\n\n".join(listed)


def _lines(kernel: Kernel) -> list[str]:
    return [
        kernel.name,
        f"  {kernel.summary}",
        *(
            f"  {parameter.option:<13}{parameter.help} [{parameter.default_label}]"
            for parameter in kernel.parameters
        ),
    ]
