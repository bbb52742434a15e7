"""The record of one element of a program's array, and its names."""

from __future__ import annotations

from dataclasses import dataclass, field


def of_rank(rank: int | None) -> str:
    """Whose shared memory of a cluster is meant: that of the block of a rank, or the own one's."""
    return "" if rank is None else f" of rank {rank}"


@dataclass(frozen=True)
class Element:
    """One element of an array.

    Attributes:
        space: The state space of the array: `global`, `shared`, `const` or `local`.
        array: The array's name in the source.
        index: Row-major position in the array.
        subscripts: The position in each dimension.
        member: The member of an element that is a structure, as the source writes it: `.x`.
        dtype: The short name of the type, `f32`; empty if it is not known.
        rank: In the shared memory of another block of the cluster, the rank of that block.
    """

    space: str
    array: str
    index: int
    subscripts: tuple[int, ...]
    member: str = ""
    dtype: str = field(default="", compare=False, repr=False)
    rank: int | None = None

    @property
    def name(self) -> str:
        """The name with all subscripts: `M[3][0]`, `tile[1] of rank 2`."""
        subscripts = "".join(f"[{subscript}]" for subscript in self.subscripts)
        return self.array + subscripts + self.member + of_rank(self.rank)

    @property
    def flat(self) -> str:
        """The name as for a pointer: `M[12]`."""
        return f"{self.array}[{self.index}]{self.member}"

    @property
    def short(self) -> str:
        """`flat` in global memory, which programs address by pointers, otherwise `name`."""
        return self.flat if self.space == "global" else self.name

    @property
    def label(self) -> str:
        """Both names where they differ: `M[12] = M[3][0]`; only `name` outside global memory."""
        both = self.space == "global" and len(self.subscripts) > 1
        return f"{self.flat} = {self.name}" if both else self.name
