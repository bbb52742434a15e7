from collections import Counter

import pytest
from machine_code import accesses
from paths import DATA

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.machine_code.disassembly import (
    DisassemblyError,
    disassemble,
    find_nvdisasm,
    read_disassembly,
)
from memlab.device.machine_code.instructions import Control

KINDS = {"LDG": "global_load", "STG": "global_store", "LDS": "shared_load", "STS": "shared_store"}

LISTING = """
	.section	.text.k,"ax",@progbits
        .type           k,@function
k:
.text.k:
	//## File ".nv_debug_ptx_txt", line 20
        /*0000*/                   LDC R1, c[0x0][0x28] ;           /* 0x00000a00ff017b82 */
                                                                    /* 0x000fe20000000800 */
	//## File ".nv_debug_ptx_txt", line 37
        /*0010*/              @!P0 LDG.E R6, desc[UR4][R2.64+0x4] ; /* 0x0000000000067919 */
                                                                    /* 0x004ea2000c1e1900 */
.L_x_3:
        /*0020*/             BRX R2 (*"BRANCH_TARGETS .L_x_3,.L_x_4"*); /* 0xfffffff802b07949 */
                                                                    /* 0x000fea000383ffff */
.L_x_4:
        /*0030*/              @!UP1 CALL.REL.NOINC `($slow) ;       /* 0xfffffff802b07949 */
                                                                    /* 0x040fea000383ffff */
        .type           $slow,@function
$slow:
        /*0040*/                   RET.REL.NODEC R8 `(k) ;          /* 0xfffffff802b07949 */
                                                                    /* 0x000fea000383ffff */
	.section	.text.other,"ax",@progbits
"""


def test_an_instruction_is_read_with_its_line_targets_and_control_bits():
    code = read_disassembly(LISTING, "k", (9, 0))

    first, load, indirect, call, _ = code.instructions
    assert (first.opcode, first.operands, first.ptx_line) == ("LDC", ("R1", "c[0x0][0x28]"), 20)
    assert (load.predicate, load.operands) == ("!P0", ("R6", "desc[UR4][R2.64+0x4]"))
    # 0x004ea2 >> 1 is, in groups of 4, 6, 3, 3, 1 and 4 bits: 0000 000100 111 010 1 0001.
    assert load.control == Control(1, 2, None, 0b000100)
    assert indirect.targets == (0x20, 0x30)
    assert (call.predicate, call.target, call.ptx_line) == ("!UP1", 0x40, 37)
    assert code.functions == {0x40: "$slow"}


@pytest.mark.parametrize("architecture", [(7, 5), (8, 0), (9, 0), (10, 0)])
def test_memory_instructions_are_those_in_the_encoding(architecture):
    source = (DATA / "h200-kernels.cu").read_text()
    cubin = compile_unit(TranslationUnit(source, "h200-kernels.cu", architecture)).cubin

    code = disassemble(cubin, "tiled16", architecture)

    found = Counter(KINDS[step.name] for step in code.instructions if step.name in KINDS)
    assert found == Counter(kind for kind, _ in accesses(cubin, "tiled16"))
    assert code.has_control == (architecture <= (9, 0))
    assert all((step.control is not None) == code.has_control for step in code.instructions)


def test_lines_lead_to_the_ptx_of_the_same_kernel():
    source = (DATA / "h200-kernels.cu").read_text()
    output = compile_unit(TranslationUnit(source, "h200-kernels.cu", (9, 0)))
    ptx = output.ptx.splitlines()

    code = disassemble(output.cubin, "row_sum", (9, 0))

    loads = [ptx[step.ptx_line - 1] for step in code.instructions if step.name == "LDG"]
    assert loads
    assert all("ld.global.f32" in line for line in loads)


def test_a_missing_kernel_is_named():
    with pytest.raises(DisassemblyError, match="'absent'"):
        read_disassembly(LISTING, "absent", (9, 0))


def test_nvdisasm_of_the_package_is_found():
    assert find_nvdisasm().name.startswith("nvdisasm")
