"""What the parser makes of PTX text."""

import pytest
from ptx import kernel

from memlab.device.emulator.ptx.parser import (
    Address,
    DestinationPair,
    Immediate,
    Negated,
    PtxError,
    Register,
    Symbol,
    Vector,
    parse_ptx,
)


def test_module_entries_and_variables() -> None:
    module = parse_ptx(
        kernel(
            ".shared .align 8 .f64 part[4]; ret;",
            ".u64 a, .align 4 .b8 item[16], .u64 .ptr .global .align 16 p",
            ".const .align 4 .f32 table[2] = {0f3F800000, 0fBF800000};\n"
            ".global .align 4 .u32 counter = 7;\n.extern .shared .align 16 .b8 dyn[];",
        )
    )
    table, counter, dynamic = module.variables
    assert (table.space, table.size) == ("const", 8)
    assert table.initial == bytes.fromhex("0000803f000080bf")
    assert counter.initial == b"\7\0\0\0"
    assert (dynamic.space, dynamic.size, dynamic.align) == ("shared", 0, 16)
    entry = module.entries["k"]
    assert [(each.name, each.size) for each in entry.parameters] == [
        ("a", 8), ("item", 16), ("p", 8),
    ]  # fmt: skip
    assert [(each.name, each.size, each.align) for each in entry.variables] == [("part", 32, 8)]


def test_operands_of_every_form() -> None:
    entry = parse_ptx(
        kernel(
            ".reg .b32 %r<9>; .reg .pred %p<3>; .reg .b64 %d<3>;\n"
            "@!%p1 bra done;\n"
            "shfl.sync.up.b32 %r1|%p1, %r2, 1, 0x1f, -1;\n"
            "ld.global.v2.b32 {%r1, %r2}, [%d1+-8];\n"
            "selp.b32 %r1, 0f3F800000, 1.5, !%p2;\n"
            "mov.u32 %r3, table+12;\n"
            "ld.param.b32 %r3, [param];\n"
            "done: ret;",
            ".u32 param",
        )
    ).entries["k"]
    branch, shuffle, load, select, move, parameter, last = entry.instructions
    assert (branch.guard, branch.guard_negated, branch.operands) == ("%p1", True, (Symbol("done"),))
    assert shuffle.operands[0] == DestinationPair(Register("%r1"), Register("%p1"))
    assert [each.bits for each in shuffle.operands[2:]] == [1, 31, -1]
    assert load.operands == (
        Vector((Register("%r1"), Register("%r2"))),
        Address(Register("%d1"), -8),
    )
    assert select.operands[1] == Immediate("f32", 0x3F80_0000)
    assert select.operands[2] == Immediate("f64", 0x3FF8_0000_0000_0000)
    assert select.operands[3] == Negated(Register("%p2"))
    assert move.operands[1] == Symbol("table", 12)
    assert parameter.operands[1] == Address(Symbol("param"), 0)
    assert entry.labels == {"done": 6}
    assert last.opcode == "ret"
    assert entry.registers["%p2"] == "pred"


def test_lines_of_ptx_and_source() -> None:
    text = kernel(
        ".reg .f32 %f<3>;\n.loc 1 12 5\nadd.f32 %f1, %f1, %f2;\n/* two\n"
        "lines */ add.f32 %f2, %f1,\n  %f1; // trailing\n.loc 1 0 0\nret;"
    )
    first, second, last = parse_ptx(text).entries["k"].instructions
    lines = text.splitlines()
    assert [each.source_line for each in (first, second, last)] == [12, 12, 12]
    assert lines[first.ptx_line - 1].startswith("add.f32 %f1")
    assert "lines */ add.f32 %f2" in lines[second.ptx_line - 1]


def test_scopes_keep_names_apart() -> None:
    # Inline assembly declares the same names again and again, with other types and without `%`.
    entry = parse_ptx(
        kernel(
            ".reg .b32 %r<3>;\n"
            "{ .reg .pred p; setp.ne.u32 p, %r1, 0; @p bra skip; mov.u32 %r2, 1; skip: }\n"
            "{ .reg .b64 p; cvt.u64.u32 p, %r1; st.global.u32 [p], %r2; skip: }\n"
            "ret;"
        )
    ).entries["k"]
    compare, branch, _, convert, store, _ = entry.instructions
    first, second = compare.operands[0], convert.operands[0]
    assert isinstance(first, Register)
    assert isinstance(second, Register)
    assert branch.guard == first.name != second.name
    assert (entry.registers[first.name], entry.registers[second.name]) == ("pred", "b64")
    assert store.operands[0] == Address(second, 0)
    label = branch.operands[0]
    assert isinstance(label, Symbol)
    assert entry.labels[label.name] == 3


def test_functions_and_jump_tables() -> None:
    function = ".func (.param .b32 result) twice(.param .b32 value)\n{ ret; }\n"
    module = parse_ptx(
        kernel(
            ".reg .b32 %r<3>;\ntable: .branchtargets one, two;\n"
            "brx.idx %r1, table;\none: ret;\ntwo: ret;",
            functions=function + ".extern .func (.param .b32 r) vprintf (.param .b64 a);",
        )
    )
    assert list(module.functions) == ["twice"]
    twice = module.functions["twice"]
    assert [each.name for each in (*twice.results, *twice.parameters)] == ["result", "value"]
    jump = module.entries["k"].instructions[0]
    assert jump.operands == (Register("%r1"), Vector((Symbol("one"), Symbol("two"))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "PTX line 1: unfinished statement: hello"),
        ("", "there is no .version directive"),
        (".version 8.0\nfoo;\n", "PTX line 2: not understood: foo"),
        (kernel("add.f32 %f1, %f2, <>;"), "PTX line 7: operand not understood: <>"),
        (kernel(".reg .f99 %f1;"), "PTX line 7: not understood: .reg .f99 %f1"),
        (kernel(".reg .b32 %r<2000000>;"), "PTX line 7: 2000000 registers; at most 1000000"),
        (kernel("ret;").rstrip("}\n"), "the body of k has no end"),
    ],
)
def test_a_parse_error_names_its_line(text: str, message: str) -> None:
    with pytest.raises(PtxError) as error:
        parse_ptx(text)
    assert message in str(error.value)
