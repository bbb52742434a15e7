"""`memlab.kernels`, `explain` and `lesson`: kernels by name, the glossary and the lessons."""

from __future__ import annotations

from memlab.errors import UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.user.project import read_user_kernels
from memlab.lessons.lesson import Lesson, find_lesson
from memlab.results import Explanation, KernelList
from memlab.roofline import glossary


def kernels() -> KernelList:
    """List the kernels that can be run by name: the catalog's, and those in `./memlab.toml`.

    Returns:
        The kernels by name: `kernels["tiled"].parameters` has the parameters with their defaults,
        and `list(kernels)` the names. `kernels.catalog` and `kernels.user` tell the two apart.

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


def lesson(number: int | str) -> Lesson:
    """Return a lesson on memory, which a notebook shows.

    Examples:
        memlab.lesson(4)

    Args:
        number: Its number, from 1 to 15, or its name, such as `tiling`.

    Returns:
        The lesson: `lesson.text` in Markdown, `lesson.commands` with the output that they give.

    Raises:
        UsageError: There is no such lesson.
    """
    return find_lesson(number)
