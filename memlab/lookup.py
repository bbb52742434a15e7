"""`memlab.kernels`, `explain` and `runs`: kernels by name, the glossary, and stored runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.errors import UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.user.project import read_user_kernels
from memlab.results import Explanation, KernelList
from memlab.roofline import glossary

if TYPE_CHECKING:
    from pathlib import Path

    from memlab.roofline.run import Run


def kernels() -> KernelList:
    """List the kernels that can be run by name: the catalog's, and those in `./memlab.toml`.

    Returns:
        The list: `kernels.names`, `kernels.catalog` (with parameters and defaults) and
        `kernels.user`.

    Raises:
        UsageError: `memlab.toml` cannot be read.
    """
    return KernelList(tuple(CATALOG.values()), read_user_kernels())


def explain(name: str | None = None) -> Explanation:
    """Explain a term, a counter or a kernel.

    Examples:
        memlab.explain("wavefront")

    Args:
        name: The term, one of its other names, Nsight Compute's name of a metric, or a kernel;
            case, dashes and underscores do not matter. None lists all that can be explained.

    Returns:
        The explanation; `explanation.entries` has paragraphs, unit, formula and source.

    Raises:
        UsageError: There is no such term; the message names the nearest. Or the name is no text.
    """
    if name is not None:
        if not isinstance(name, str):
            raise UsageError(
                f"a term is a text, got an object of type {type(name).__name__}: "
                "use explain('wavefront')"
            )
        return Explanation(name, glossary.find_entries(name))
    kernel_entries = (glossary.kernel_entry(kernel) for kernel in CATALOG.values())
    return Explanation(None, (*glossary.terms().values(), *kernel_entries))


def runs(
    *,
    device: str | int | None = None,
    kernel: str | None = None,
    store: Path | str | None = None,
) -> list[Run]:
    """Read the stored runs, oldest first.

    Args:
        device: Only the runs of this device: a GPU's index, such as 0, or its name, or a
            datasheet's name, such as `h200`. None takes all.
        kernel: Only the runs of this kernel; None takes all.
        store: The file of the stored runs; None takes `MEMLAB_STORE` from the environment, else a
            file in the user's data folder.

    Returns:
        The runs; `memlab.frame(runs)` makes a pandas frame of them, `memlab.roofline(runs)` a
        picture.

    Raises:
        UsageError: The store cannot be read.
        Incomplete: Some runs cannot be read; its `result` is the others.
    """
    from memlab.roofline.store.store import Store

    return Store(store).runs(device_key(device), kernel)


def device_key(device: str | int | None) -> str | None:
    """Return the name under which runs of a device are stored: `cuda:0` for the GPU 0."""
    if device is None:
        return None
    text = str(device)
    return f"cuda:{text}" if text.isdecimal() else text
