"""What a source is compiled without, kept for its next compilation.

A compiler that refuses host code is asked again without it, until it takes the rest. Another
compilation of the same source, such as that with debug information or of another kernel, begins
with what was left in the end. The files lie in the cache of compilations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memlab.device.compiler import cache
from memlab.device.compiler.headers import HeaderChanges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.compiler.headers import IncludedHeaders
    from memlab.device.compiler.translation_unit import TranslationUnit

_FORMAT = "reduction 1"


@dataclass(frozen=True)
class Reduction:
    """What differs between a source and what the compiler gets.

    Attributes:
        source: The text that is left.
        options: The compiler's options that were added.
        changes: The changes of headers.
        removed: The messages about host code that was removed.
        with_nvcc: Whether nvcc is asked, for NVRTC takes no reduction.
    """

    source: str
    options: tuple[str, ...] = ()
    changes: HeaderChanges = field(default_factory=HeaderChanges)
    removed: tuple[str, ...] = ()
    with_nvcc: bool = False

    def applied(self, unit: TranslationUnit) -> TranslationUnit:
        """A translation unit of the same source, reduced."""
        return replace(unit, source=self.source, options=(*unit.options, *self.options))


def load_reduction(
    unit: TranslationUnit, included: IncludedHeaders, compiler: Sequence[str]
) -> Reduction | None:
    """Read what a source was reduced to; None if that is not known.

    Args:
        unit: The translation unit.
        included: The headers that it can include.
        compiler: The compiler's versions.
    """
    parts = cache.load_parts(_key(unit, included, compiler))
    try:
        stored = json.loads(parts[0]) if parts else None
        if stored is None:
            return None
        return Reduction(
            stored["source"],
            tuple(stored["options"]),
            HeaderChanges(tuple(stored["left_out"]), stored["texts"]),
            tuple(stored["removed"]),
            stored["with_nvcc"],
        )
    except (ValueError, TypeError, KeyError):
        return None


def store_reduction(
    unit: TranslationUnit, included: IncludedHeaders, compiler: Sequence[str], found: Reduction
) -> None:
    """Keep what a source was reduced to, unless it is the whole of it; as `load_reduction`."""
    if found == Reduction(unit.source):
        return
    stored = {
        "source": found.source,
        "options": found.options,
        "left_out": found.changes.left_out,
        "texts": dict(found.changes.texts),
        "removed": found.removed,
        "with_nvcc": found.with_nvcc,
    }
    cache.store_parts(_key(unit, included, compiler), [json.dumps(stored).encode()])


def _key(unit: TranslationUnit, included: IncludedHeaders, compiler: Sequence[str]) -> str:
    """The name of the file: a hash of the source, whatever kernel of it is compiled, and how."""
    about = (option for option in unit.options if option != "-G" and "ptxas-options" not in option)
    plain = replace(unit, options=tuple(about), name_expression="")
    return cache.hash_groups([(_FORMAT, cache.cache_key(plain, included, compiler))])
