"""Machine code that tests make by hand."""

from memlab.device.machine_code.instructions import MachineCode, MachineInstruction


def code_of(*steps, functions=None):
    """Machine code of (opcode, predicate, operands, target) tuples."""
    return MachineCode(
        "k",
        (8, 0),
        tuple(
            MachineInstruction(16 * number, predicate, opcode, operands, target, 0, None)
            for number, (opcode, predicate, operands, target) in enumerate(steps)
        ),
        functions or {},
    )


PLAIN = ("FADD", "", (), None)
END = ("EXIT", "", (), None)
