"""One element of a program's array, and the ways to write its name."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Element:
    """One element of an array.

    Attributes:
        space: The state space that the array lies in: `global`, `shared`, `const` or `local`.
        array: Its name in the source.
        index: Row-major position in the array.
        subscripts: The position in each of its dimensions.
        member: What of it, where it is a structure, as the program writes it: `.x`.
        dtype: The short name of its type, `f32`; empty where it is not known.
    """

    space: str
    array: str
    index: int
    subscripts: tuple[int, ...]
    member: str = ""
    dtype: str = field(default="", compare=False, repr=False)

    @property
    def name(self) -> str:
        """As a program with the array's dimensions writes it: `M[3][0]`."""
        return self.array + "".join(f"[{each}]" for each in self.subscripts) + self.member

    @property
    def flat(self) -> str:
        """As a program with a pointer writes it: `M[12]`."""
        return f"{self.array}[{self.index}]{self.member}"

    @property
    def short(self) -> str:
        """With one index in global memory, which programs address by pointers, else as `name`."""
        return self.flat if self.space == "global" else self.name

    @property
    def label(self) -> str:
        """Both where they differ: `M[12] = M[3][0]`; shared arrays have dimensions anyway."""
        both = self.space == "global" and len(self.subscripts) > 1
        return f"{self.flat} = {self.name}" if both else self.name
