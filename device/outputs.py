"""The arrays that a launch wrote, for the caller who made it; no store and no document has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memlab.errors import UsageError, suggest_nearest


@dataclass(frozen=True, eq=False)
class Outputs(Mapping[str, Any]):
    """The outputs of a launch by name: NumPy arrays in the shapes and types of the arguments.

    Where the emulator executed a sample of the blocks, an output is a `numpy.ma.MaskedArray`: the
    elements that those blocks did not write are masked.

    Attributes:
        arrays: The arrays, by name.
        missing: Why there are none; empty if there are.
    """

    arrays: Mapping[str, Any] = field(default_factory=dict)
    missing: str = (
        "this run has no outputs: memlab.run gives back those of your own kernels, and no store "
        "keeps them"
    )

    def __getitem__(self, name: str) -> Any:
        """The output of this name.

        Raises:
            UsageError: There is none.
        """
        if self.missing:
            raise UsageError(self.missing)
        if name not in self.arrays:
            raise UsageError(
                f"the launch has no output {name!r}: {suggest_nearest(str(name), self.arrays)}"
                if self.arrays
                else "the launch has no outputs: declare an argument out: or inout:"
            )
        return self.arrays[name]

    def __contains__(self, name: object) -> bool:
        return not self.missing and name in self.arrays

    def __iter__(self) -> Iterator[str]:
        return iter(() if self.missing else self.arrays)

    def __len__(self) -> int:
        return 0 if self.missing else len(self.arrays)
