"""The pipes that execute machine code, by the names that Nsight Compute gives them.

Sources: Nsight Compute, Profiling Guide, "Pipelines"; and the counts of an H200 by pipe
(`docs/results/h200-truth.csv`), by which `VIADD` runs beside `IMAD`, and `HFMA2.MMA`, with which
ptxas moves constants, on the tensor pipe. An instruction that no list names runs on the ALU, as
most integer and logic instructions do.
"""

from __future__ import annotations

from memlab.device.machine_code.instructions import MachineInstruction

PIPES: dict[str, str] = {
    "fma": "FFMA FADD FMUL FSWZADD FFMA32I FADD32I FMUL32I FFMA2 FADD2 FMUL2 IMAD IMUL IDP IDP4A "
    "VIADD",
    "alu": "",
    "fp16": "HFMA2 HADD2 HMUL2 HMNMX2 HSET2 HSETP2",
    "fp64": "DFMA DADD DMUL DSETP DMNMX",
    "xu": "MUFU POPC FLO BREV I2F F2I F2F FRND I2I FCHK",
    "tensor": "HMMA IMMA BMMA DMMA HGMMA IGMMA QGMMA OMMA QMMA UTCHMMA UTCIMMA UTCQMMA",
    "lsu": "LD LDG LDL LDS LDSM ST STG STL STS STSM LDGSTS ATOM ATOMG ATOMS RED REDG SHFL MATCH "
    "REDUX MEMBAR ERRBAR CCTL MOVM QSPC S2R",
    "tex": "TEX TLD TLD4 TXQ TXD TMML SULD SUST SUATOM SURED",
    "cbu": "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BSSY BSYNC BREAK WARPSYNC BMOV YIELD NANOSLEEP "
    "KILL BPT RPCMOV RTT LEPC",
    "adu": "BAR LDC DEPBAR LDGDEPBAR SYNCS ARRIVES B2R R2B",
    "uniform": "R2UR S2UR VOTEU",
    "none": "NOP",
}
"""The instructions of each pipe, by their names."""

INTEGER_INSTRUCTIONS = frozenset(
    (
        *("BMSK", "FLO", "IABS", "IADD", "IADD3", "IADD32I", "IDP", "IDP4A", "IMAD"),
        *("IMNMX", "IMUL", "IMUL32I", "ISCADD", "ISCADD32I", "ISETP", "LEA", "LOP", "LOP3"),
        *("LOP32I", "POPC", "SHF", "SHL", "SHR", "VABSDIFF", "VABSDIFF4", "VIADD", "VIADDMNMX"),
        *("VIMNMX", "VIMNMX3", "IADD64", "IMNMX64", "ISETP64", "XMAD"),
    )
)
"""The integer instructions (CUDA Binary Utilities, "Instruction Set Reference", "Integer
Instructions") that Nsight Compute counts on an H200 (`op_integer`): with moves that are products
and sums (`IMAD.MOV`), but without `BREV`, which it counts with instructions on bits (`op_bit`)."""

_PIPE_OF = {name: pipe for pipe, names in PIPES.items() for name in names.split()}


def pipe_of(step: MachineInstruction) -> str:
    """The pipe that executes an instruction: a key of `PIPES`."""
    name = step.name
    if step.opcode.startswith("HFMA2.MMA"):
        return "tensor"
    if name in _PIPE_OF:
        return _PIPE_OF[name]
    # Instructions on the uniform registers are those of the other pipes with a U before them.
    return "uniform" if name.startswith("U") else "alu"


def integer_pipe_of(step: MachineInstruction) -> str | None:
    """The pipe of an integer instruction: `alu`, `fma` or `xu`; None for other instructions."""
    return pipe_of(step) if step.name in INTEGER_INSTRUCTIONS else None
