"""The compiler leaves the loops of the micro-benchmarks the instructions to be measured."""

from collections import Counter

import pytest

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.machine_code.disassembly import disassemble
from memlab.kernels.peaks import calibration
from memlab.kernels.peaks.memory_loops import benchmark_source

PIPE_OPCODES = {
    "fma": ("FFMA",),
    "alu": ("LOP3",),
    "imad": ("IMAD",),
    "fp64": ("DFMA",),
    "fp16": ("HFMA2",),
    "bf16": ("HFMA2",),
    "mufu": ("MUFU",),
    "f2i": ("F2I",),
    "i2f": ("I2F", "I2FP"),
    "popc": ("POPC",),
    "shuffle": ("SHFL",),
    "redux": ("REDUX",),
}


def cubin(file):
    return compile_unit(TranslationUnit(benchmark_source(file), file, (9, 0))).cubin


def counted(code, entry):
    return Counter(each.name for each in disassemble(code, entry, (9, 0)).instructions)


@pytest.fixture(scope="module")
def pipes():
    return cubin("pipes.cu")


def test_every_pipe_is_known():
    assert set(PIPE_OPCODES) == set(calibration.pipes((9, 0)))


@pytest.mark.parametrize("pipe", PIPE_OPCODES)
def test_a_pipes_loop_is_made_of_its_instruction(pipes, pipe):
    steps = calibration.PIPE_REPEAT
    for entry, chains in ((f"rate_{pipe}", calibration.PIPE_CHAINS), (f"latency_{pipe}", 1)):
        found = counted(pipes, entry)
        assert sum(found[opcode] for opcode in PIPE_OPCODES[pipe]) >= chains * steps, entry


def test_loads_are_neither_dropped_nor_joined(pipes):
    assert counted(pipes, "loads_l1")["LDG"] >= calibration.PIPE_REPEAT
    assert counted(pipes, "loads_shared")["LDS"] >= calibration.PIPE_REPEAT


@pytest.mark.slow
def test_code_has_the_size_that_its_name_says():
    code = cubin("code.cu")
    for kib in calibration.CODE_KIB[:4]:
        expected = 1024 * kib // calibration.INSTRUCTION_BYTES
        assert counted(code, f"code_{kib}")["FFMA"] == expected


def test_atomics_are_not_added_up_before():
    code = cubin("atomics.cu")
    assert counted(code, "add")["RED"] + counted(code, "add")["REDG"] > 0
    assert counted(code, "add_shared")["ATOMS"] >= calibration.SHARED_ATOMICS_PER_TRIP
    for entry in ("chain_global", "chain_shared"):
        assert not counted(code, entry)["POPC"]


def test_the_clock_is_read_when_the_values_are_there():
    found = disassemble(cubin("loaded.cu"), "loaded", (9, 0)).instructions
    names = [each.name for each in found]
    load, vote = names.index("LDG"), names.index("VOTE")
    clocks = [place for place, name in enumerate(names) if name in ("CS2R", "S2UR", "S2R")]
    assert names.count("LDG") == 1
    assert any(place < load for place in clocks)
    assert any(place > vote > load for place in clocks)
