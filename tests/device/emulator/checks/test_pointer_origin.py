"""The array that each access of a program was meant for."""

from typing import Any

import numpy as np
from ptx import fill_memory, kernel, parameter_space

from memlab.device.emulator.checks.pointer_origin import find_pointer_origins
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import parse_ptx

ARRAYS = {"a": np.zeros(32, np.float32), "b": np.zeros(32, np.float32)}
POINTERS = ".reg .b64 %a<20>, %n<20>; .reg .b32 %x<9>; .reg .pred %p<3>;"


def origins(body: str, functions: str = "", more: dict[str, Any] | None = None) -> list[object]:
    """The origin of each access to memory that is not a parameter, in order; None where unknown."""
    parameters = ", ".join(
        [
            ".u64 a",
            ".u64 b",
            *(f".align 8 .b8 {name}[{len(v)}]" for name, v in (more or {}).items()),
        ]
    )
    program = load_program(parse_ptx(kernel(POINTERS + body, parameters, functions)), "k")
    memory = fill_memory(program, ARRAYS)
    values = {
        name: value(memory) if callable(value) else value for name, value in (more or {}).items()
    }
    space = parameter_space(program, memory, ARRAYS, values)
    found = find_pointer_origins(program, memory, space)
    return [
        found.get(index)
        for index, step in enumerate(program.steps)
        if step.row.kind in ("load", "store", "atomic", "reduce") and step.row.space != "param"
    ]


def structure(*words: Any) -> Any:
    """Bytes of a structure: numbers, and names of arrays for pointers to them."""

    class Late(bytes):
        def __call__(self, memory: Any) -> bytes:
            places = [memory.find(w).address if isinstance(w, str) else w for w in words]
            return b"".join(int(each).to_bytes(8, "little") for each in places)

    return Late(8 * len(words))


def test_a_pointer_into_an_array_points_into_it() -> None:
    body = "ld.param.u64 %a0, [v]; ld.global.u32 %x1, [%a0]; ret;"

    def into(offset: int) -> list[object]:
        class Late(bytes):
            def __call__(self, memory: Any) -> bytes:
                return (int(memory.find("b").address) + offset).to_bytes(8, "little")

        return origins(body, more={"v": Late(8)})

    assert into(0) == into(124) == [("global", 1)]
    assert into(128) == [None]


def test_what_is_computed_from_a_pointer_points_into_its_array() -> None:
    body = """
      ld.param.u64 %a0, [a]; ld.param.u64 %a1, [b];
      cvta.to.global.u64 %a2, %a1; mov.u32 %x0, %tid.x; mul.wide.u32 %n0, %x0, 4;
      add.u64 %a3, %a2, %n0; mad.wide.u32 %a4, %x0, 4, %a0;
      ld.global.u32 %x1, [%a0+4]; st.global.u32 [%a3], %x1; red.global.add.u32 [%a4], %x1;
      add.u64 %a5, %a0, %a1; ld.global.u32 %x1, [%a5];
      ld.global.u32 %x1, [%n0];
      setp.eq.u64 %p0, %a0, %a1; selp.u64 %a6, %a1, %a3, %p0; ld.global.u32 %x1, [%a6];
      selp.u64 %a7, %a1, %a0, %p0; ld.global.u32 %x1, [%a7]; ret;"""
    a, b = ("global", 0), ("global", 1)
    assert origins(body) == [a, b, a, None, None, b, None]


def test_a_pointer_is_followed_against_the_order_of_instructions() -> None:
    body = """
      ld.param.u64 %a0, [a]; mov.u64 %a3, 0;
    AGAIN: ld.global.u32 %x1, [%a3];
      mov.u64 %a3, %a2; mov.u64 %a2, %a1; mov.u64 %a1, %a0;
      setp.eq.u32 %p0, %x1, 0; @%p0 bra AGAIN; ret;"""
    assert origins(body) == [("global", 0)]


def test_variables_of_every_space_are_arrays() -> None:
    variables = ".visible .global .align 4 .b8 g[64]; .const .align 4 .b8 d[64];"
    variables += ".const .align 4 .b8 c[64];"
    body = """
      .shared .align 4 .b8 t[64]; .shared .align 4 .b8 s[64]; .local .align 4 .b8 l[64];
      ld.shared.u32 %x1, [t+4]; ld.shared.u32 %x1, [s]; ld.const.u32 %x1, [d];
      ld.const.u32 %x1, [c]; ld.global.u32 %x1, [g]; ld.local.u32 %x1, [l]; ld.shared.u32 %x1, [4];
      mov.u64 %a0, t; cvta.shared.u64 %a1, %a0; st.u32 [%a1+4], %x1;
      mov.u64 %a2, g; st.global.u32 [%a2], %x1; ret;"""
    assert origins(body, variables) == [
        ("shared", 0),
        ("shared", 1),
        ("const", 0),
        ("const", 1),
        ("global", 2),
        None,
        None,
        ("shared", 0),
        ("global", 2),
    ]


def test_a_pointer_from_memory_may_point_anywhere() -> None:
    body = """
      ld.param.u64 %a0, [a]; ld.global.u64 %a1, [%a0]; ld.global.u32 %x1, [%a1];
      add.u64 %a2, %a1, %a0; ld.global.u32 %x1, [%a2];
      atom.global.exch.b64 %a3, [%a0], %a0; add.u64 %a3, %a3, %a0; ld.global.u32 %x1, [%a3];
      ld.global.u32 %x2, [%a0]; cvt.u64.u32 %n1, %x2; add.u64 %a4, %n1, %a0;
      ld.global.u32 %x1, [%a4];
      ld.global.v2.u64 {%a5, %n2}, [%a0]; add.u64 %a6, %n2, %a0; ld.global.u32 %x1, [%a6];
      ret;"""
    a = ("global", 0)
    assert origins(body) == [a, None, None, a, None, a, a, a, None]


def test_pointers_in_structures_are_found() -> None:
    body = """
      ld.param.u64 %a0, [s+8]; ld.global.u32 %x1, [%a0];
      ld.param.u64 %a1, [s]; ld.global.u32 %x1, [%a1];
      ld.param.v2.u64 {%a2, %n0}, [s+16]; ld.global.u32 %x1, [%a2];
      ld.param.v2.u64 {%n1, %n2}, [s]; ld.global.u32 %x1, [%n1];
      mov.u64 %a4, s; ld.param.u64 %a5, [%a4]; ld.global.u32 %x1, [%a5];
      ld.param.v2.u64 {%a6, %a7}, [s+8]; ld.global.u32 %x1, [%a6];
      ret;"""
    a, b = ("global", 0), ("global", 1)
    found = origins(body, more={"s": structure(7, "b", "a", 9)})
    assert found == [b, None, a, b, None, None]
