"""Machine code as records: instructions with operands, their PTX line and control bits.

The control bits tell the hardware when an instruction may issue. NVIDIA does not document them.
Their layout for compute capability 7.0 to 9.0 is that of Jia et al., "Dissecting the NVIDIA Volta
GPU Architecture via Microbenchmarking" (arXiv 1804.06826), section 2.1, and of Huerta et al.,
"Analyzing Modern NVIDIA GPU cores" (MICRO 2025, arXiv 2503.20481), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.compiler.translation_unit import Architecture

INSTRUCTION_BYTES = 16
"""Size of an instruction from compute capability 7.0 on."""
OLDEST_WITH_CONTROL, NEWEST_WITH_CONTROL = (7, 0), (9, 0)
"""The compute capabilities between which the layout of the control bits is published."""

_CONTROL_SHIFT = 41  # in the upper 64 bits of an instruction
_NO_BARRIER = 7


@dataclass(frozen=True)
class Control:
    """The control bits of an instruction.

    Attributes:
        stall: Clocks until the warp may issue its next instruction.
        write_barrier: The dependence counter, 0 to 5, that is held until the result is written.
        read_barrier: The dependence counter that is held until the sources are read.
        wait_mask: The dependence counters that must be 0 before it issues, a bit for each.
    """

    stall: int
    write_barrier: int | None
    read_barrier: int | None
    wait_mask: int


@dataclass(frozen=True)
class MachineInstruction:
    """One instruction of the machine code.

    Attributes:
        address: Its address in the code of its kernel, bytes.
        predicate: The predicate register that guards it, with `!` if inverted; empty for none.
        opcode: The opcode with all modifiers, as nvdisasm prints it: `LDG.E.64.CONSTANT`.
        operands: The operands as nvdisasm prints them, destination first.
        target: The address that a branch or call goes to, or where the lanes that a `BSSY`
            separates meet; None for others, and where a register holds it.
        ptx_line: The line in the PTX that it comes from; 0 where it is unknown.
        control: The control bits; None on architectures whose layout is not published.
        targets: The addresses that an indirect branch may go to.
    """

    address: int
    predicate: str
    opcode: str
    operands: tuple[str, ...]
    target: int | None
    ptx_line: int
    control: Control | None
    targets: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def is_unconditional(self) -> bool:
        """Whether no predicate guards it, or one that always holds."""
        return self.predicate in ("", "PT")

    @property
    def text(self) -> str:
        """The instruction in one line."""
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()


@dataclass(frozen=True)
class MachineCode:
    """The machine code of a kernel, with the functions that it calls.

    Attributes:
        entry: The kernel's name in the compiled code.
        architecture: The compute capability that it was compiled for.
        instructions: The instructions in the order of their addresses.
        functions: The names of the functions behind the kernel's own code, by their first address,
            such as the slow path of a division.
    """

    entry: str
    architecture: Architecture
    instructions: tuple[MachineInstruction, ...]
    functions: Mapping[int, str] = field(default_factory=dict)

    @property
    def has_control(self) -> bool:
        """Whether the control bits are known."""
        return has_control(self.architecture)

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """The position of each instruction by its address."""
        return {step.address: index for index, step in enumerate(self.instructions)}


def has_control(architecture: Architecture) -> bool:
    """Whether the layout of the control bits is published for a compute capability."""
    return OLDEST_WITH_CONTROL <= architecture <= NEWEST_WITH_CONTROL


def decode_control(upper: int) -> Control:
    """Decode the control bits from the upper 64 bits of an instruction."""
    bits = upper >> _CONTROL_SHIFT
    write, read = bits >> 5 & 7, bits >> 8 & 7
    return Control(
        stall=bits & 0xF,
        write_barrier=None if write == _NO_BARRIER else write,
        read_barrier=None if read == _NO_BARRIER else read,
        wait_mask=bits >> 11 & 0x3F,
    )
