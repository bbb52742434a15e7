"""Descriptors of `wgmma` that the rank of a block spoils.

A descriptor takes 18 bits of an address (PTX ISA, "matrix-descriptor-encode": `(x & 0x3FFFF) >>
4`). In a cluster an address in shared memory has more: from bit 24 on it names the block. Where
they are not masked, they reach another field, and the product reads other memory in every block but
the first. The program tells which bits of a descriptor may come from a rank, through moves, shifts,
sums and masks by constants; only what a warp then executes is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memlab.device.emulator.isa.address_space import RANK_SHIFT
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Immediate,
    Operand,
    Register,
    Vector,
)

_RANKS = 0xF << RANK_SHIFT  # a cluster has 16 blocks at most
_ALL = (1 << 64) - 1


@dataclass(frozen=True)
class DescriptorField:
    """A field of a descriptor.

    Attributes:
        name: Its name in the PTX ISA.
        first: Its lowest bit.
        last: Its highest bit.
    """

    name: str
    first: int
    last: int

    @property
    def mask(self) -> int:
        """Its bits."""
        return (1 << self.last + 1) - (1 << self.first)


_LEADING = DescriptorField("leading dimension byte offset", 16, 29)
_FIELDS = (
    _LEADING,
    DescriptorField("stride dimension byte offset", 32, 45),
    DescriptorField("base offset", 49, 51),
    DescriptorField("swizzling mode", 62, 63),
)
SWIZZLED = 3 << 62
"""The bits of the swizzling mode; a K-major matrix has no leading offset with any of them."""


@dataclass(frozen=True)
class SpoiledDescriptor:
    """A descriptor into a field of which the rank of the block may come.

    Attributes:
        field: The first such field.
        bits: The bits of the field that may come from a rank.
        descriptor: The operand.
        unless: Bits of the descriptor, any of which makes the field unused.
    """

    field: DescriptorField
    bits: int
    descriptor: Operand
    unless: int


@lru_cache(maxsize=32)
def find_spoiled_descriptors(program: Program) -> Mapping[int, SpoiledDescriptor]:
    """Spoiled descriptors by the position where they are first used for a product."""
    steps = program.steps
    uses = {
        index: step
        for index, step in enumerate(steps)
        if step.row.opcode.startswith("wgmma.address.") and _is_first_of_product(step)
    }
    if not uses:
        return {}
    ranks = _rank_bits(program)
    found = {}
    for index, step in uses.items():
        descriptor = step.instruction.operands[1]
        bits = _bits_of(descriptor, ranks)
        field = next((field for field in _FIELDS if bits & field.mask), None)
        if field is not None:
            is_k_major = step.row.opcode.endswith(".k")
            unless = SWIZZLED if is_k_major and field is _LEADING else 0
            found[index] = SpoiledDescriptor(field, bits & field.mask, descriptor, unless)
    return found


def _is_first_of_product(step: DecodedInstruction) -> bool:
    """Whether the rows are those of A, or the first of B."""
    place = step.instruction.operands[3]
    return not isinstance(place, Immediate) or place.bits == 0


def _rank_bits(program: Program) -> Mapping[str, int]:
    """By register, the bits that may come from the rank of a block, on any path."""
    ranks: dict[str, int] = {}
    changed = True
    while changed:
        changed = False
        for step in program.steps:
            if not step.row.to:
                continue
            for name, bits in _written(step, ranks):
                known = ranks.get(name, 0)
                if bits & ~known:
                    ranks[name] = known | bits
                    changed = True
    return ranks


def _written(step: DecodedInstruction, ranks: Mapping[str, int]) -> list[tuple[str, int]]:
    """The registers that an instruction writes, with the bits that may come from a rank."""
    to, *sources = step.instruction.operands
    width = 8 * TYPE_BYTES.get(step.row.to[0], 0)
    bits = _computed(step.row.opcode.split("."), sources, ranks, width)
    if isinstance(to, Register):
        return [(to.name, bits & (1 << width) - 1)]
    if isinstance(to, Vector) and step.row.opcode.startswith("mov."):
        each = width // len(to.items)
        return [
            (item.name, bits >> each * number & (1 << each) - 1)
            for number, item in enumerate(to.items)
            if isinstance(item, Register)
        ]
    return []


def _computed(
    parts: Sequence[str], sources: Sequence[Operand], ranks: Mapping[str, int], width: int
) -> int:
    """The bits of a result of a width that may come from a rank; none of what is not followed."""
    bits = [_bits_of(source, ranks, width) for source in sources]
    numbers = [source.bits if isinstance(source, Immediate) else None for source in sources]
    match parts[0], numbers:
        case "mapa", _:
            return _RANKS
        case (("mov" | "cvt" | "cvta"), _):
            return bits[0]
        case (("add" | "sub" | "or" | "xor"), _):
            return bits[0] | bits[1]
        case "selp", _:
            return bits[0] | bits[1]
        case "and", [_, int(mask)]:
            return bits[0] & mask
        case "and", [int(mask), _]:
            return bits[1] & mask
        case "shl", [_, int(count)]:
            return bits[0] << count & _ALL
        case "shr", [_, int(count)]:
            return bits[0] >> count
        case "mul", [_, int(factor)] if parts[1] != "hi":
            return _multiplied(bits[0], factor)
        case "mad", [_, int(factor), _] if parts[1] != "hi":
            return _multiplied(bits[0], factor) | bits[2]
        case "mad", _:
            return bits[2]
        case "bfe", [_, int(start), int(length)]:
            return bits[0] >> start & (1 << length) - 1
        case "bfi", [_, _, int(start), int(length)]:
            mask = (1 << length) - 1
            return (bits[0] & mask) << start | bits[1] & ~(mask << start)
    return 0


def _multiplied(bits: int, factor: int) -> int:
    """Bits times a power of two; other products are not followed."""
    return bits * factor & _ALL if factor.bit_count() == 1 else 0


def _bits_of(operand: Operand, ranks: Mapping[str, int], width: int = 64) -> int:
    """The bits of an operand of a width that may come from a rank."""
    if isinstance(operand, Register):
        return ranks.get(operand.name, 0)
    if isinstance(operand, Vector):
        each = width // len(operand.items)
        parts = (_bits_of(item, ranks) << each * n for n, item in enumerate(operand.items))
        return sum(parts)
    return 0
