"""Address spaces, faults and atomics."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import kernel, run

from memlab.device.emulator.isa import table
from memlab.device.emulator.machine.memory import GlobalMemory, KernelFault
from memlab.device.emulator.ptx.parser import TYPE_BYTES

START = """
.reg .pred %p<9>; .reg .b32 %r<32>; .reg .b64 %a<9>; .reg .f32 %f<9>;
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
"""


def test_generic_addresses_reach_every_space() -> None:
    # Each third of the threads takes its value from another space through one instruction.
    body = (
        START
        + """
    .shared .align 4 .b32 common[64]; .local .align 4 .b32 own[2];
    mov.u32 %r5, common; mad.lo.u32 %r5, %r1, 4, %r5; mul.lo.u32 %r6, %r1, 2;
    st.shared.u32 [%r5], %r6;
    mul.lo.u32 %r7, %r1, 3; st.local.u32 [own+4], %r7;
    ld.param.u64 %a1, [a]; mul.wide.u32 %a2, %r4, 4; add.u64 %a1, %a1, %a2;
    cvt.u64.u32 %a3, %r5; cvta.shared.u64 %a3, %a3; mov.u64 %a4, own; cvta.local.u64 %a4, %a4;
    add.u64 %a4, %a4, 4;
    rem.u32 %r8, %r1, 3; setp.eq.u32 %p1, %r8, 1; setp.eq.u32 %p2, %r8, 2;
    mov.u64 %a5, %a1; @%p1 mov.u64 %a5, %a3; @%p2 mov.u64 %a5, %a4;
    isspacep.shared %p3, %a5; isspacep.local %p4, %a5; isspacep.global %p5, %a5;
    ld.u32 %r9, [%a5]; add.u32 %r9, %r9, 1; st.u32 [%a5], %r9; ld.u32 %r10, [%a5];
    @%p3 or.b32 %r10, %r10, 0x1000; @%p4 or.b32 %r10, %r10, 0x2000; @%p5 or.b32 %r10, %r10, 0x4000;
    ld.param.u64 %a6, [out]; add.u64 %a6, %a6, %a2; st.global.u32 [%a6], %r10; ret;
    """
    )
    arrays = {"a": np.arange(64, dtype="u4") * 5, "out": np.zeros(64, "u4")}
    done = run(kernel(body, ".u64 a, .u64 out"), arrays, block=(64, 1, 1))
    spaces = ((5, 0x4000), (2, 0x1000), (3, 0x2000))
    expected = [i * spaces[i % 3][0] + 1 | spaces[i % 3][1] for i in range(64)]
    assert done["out"].tolist() == expected
    assert done["a"].tolist() == [i * 5 + (i % 3 == 0) for i in range(64)]


def test_a_misaligned_register_and_its_offset_make_an_aligned_address() -> None:
    # As compilers address a member of 8 bytes from another one's place in the structure.
    body = (
        START
        + """
    .shared .align 8 .b8 common[512]; .reg .b64 %d<3>;
    mov.u32 %r5, common; mad.lo.u32 %r5, %r1, 16, %r5; add.u32 %r6, %r5, 12;
    cvt.u64.u32 %d1, %r1; st.shared.u64 [%r6+-4], %d1; ld.shared.u64 %d2, [%r5+8];
    ld.param.u64 %a1, [out]; mul.wide.u32 %a2, %r1, 8; add.u64 %a1, %a1, %a2;
    add.u64 %a1, %a1, 4; st.global.u64 [%a1+-4], %d2; ret;
    """
    )
    done = run(kernel(body, ".u64 out"), {"out": np.zeros(32, "u8")}, block=(32, 1, 1))
    assert done["out"].tolist() == list(range(32))


def test_each_block_has_its_own_shared_memory_and_dynamic_follows_static() -> None:
    body = (
        START
        + """
    .shared .align 4 .b32 cell[1];
    setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [cell], %r2; bar.sync 0;
    mov.u32 %r5, dyn; mad.lo.u32 %r5, %r1, 4, %r5; st.shared.u32 [%r5], %r4; bar.sync 0;
    ld.shared.u32 %r6, [cell]; ld.shared.u32 %r7, [dyn+12]; mad.lo.u32 %r6, %r6, 1000, %r7;
    ld.param.u64 %a1, [out]; mul.wide.u32 %a2, %r4, 4; add.u64 %a1, %a1, %a2;
    st.global.u32 [%a1], %r6; ret;
    """
    )
    text = kernel(body, ".u64 out", ".extern .shared .align 16 .b8 dyn[];")
    arrays = {"out": np.zeros(96, "u4")}
    done = run(text, arrays, grid=(3, 1, 1), block=(32, 1, 1), dynamic_shared_bytes=128)
    assert done["out"].tolist() == [i // 32 * 1000 + i // 32 * 32 + 3 for i in range(96)]


def test_a_fault_names_variables_of_compiler_and_libraries_right_behind_them_alone() -> None:
    arrays = {
        "a": (256, 4),
        "$str": (8, 1),
        "b": (64, 4),
        "__unnamed_1": (8, 1),
        "_Z4most": (4, 4),
    }
    memory = GlobalMemory(arrays)
    last = memory.find("_Z4most").address
    assert memory.describe(last + 8192).startswith("b[")
    assert memory.describe(last + 4) == "_Z4most[1] of 1 element"
    assert memory.describe(memory.find("b").address - 4).startswith("a[")
    assert memory.describe(memory.find("b").address + 64) == "b[16] of 16 elements"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "ld.global.f32 %f1, [%a1+240];",
            "illegal address: read of 4 bytes at a[64] of 64 elements, by block (0, 0, 0) "
            "thread (4, 0, 0), line 3: x = a[i + 60];",
        ),
        (
            "st.global.v2.f32 [%a1+4], {%f1, %f2};",
            "misaligned address: write of 8 bytes at a[1] of 64 elements; the address must be a "
            "multiple of 8, by block (0, 0, 0) thread (0, 0, 0)",
        ),
        (
            "ld.shared.f32 %f1, [%r5+128];",
            "illegal address: read of 4 bytes at shared offset 128 of",
        ),
        ("st.local.f32 [own+16], %f1;", "illegal address: write of 4 bytes at local offset 16"),
        ("ld.u32 %r7, [%a8];", "global address 0x40, a null pointer"),
        ("atom.global.add.u32 %r7, [%a1+256], 1;", "illegal address: write of 4 bytes at a[64]"),
    ],
)
def test_faults_name_element_thread_and_line(line: str, message: str) -> None:
    body = (
        START
        + f"""
    .shared .align 16 .b8 tile[128]; .local .align 4 .b8 own[8];
    ld.param.u64 %a1, [a]; mul.wide.u32 %a2, %r1, 4; add.u64 %a1, %a1, %a2; mov.u32 %r5, tile;
    mov.u64 %a8, 64;
    .loc 1 3 1
    {line} ret;
    """
    )
    with pytest.raises(KernelFault) as error:
        run(
            kernel(body, ".u64 a"),
            {"a": np.zeros(64, "f4")},
            block=(32, 1, 1),
            source=["", "", "    x = a[i + 60];"],
        )
    assert message in str(error.value)


def test_lanes_that_are_masked_off_cannot_fault() -> None:
    body = (
        START
        + """
    ld.param.u64 %a1, [a]; mul.wide.u32 %a2, %r1, 400; add.u64 %a1, %a1, %a2;
    setp.eq.u32 %p1, %r1, 0; @%p1 ld.global.f32 %f1, [%a1]; @!%p1 bra out;
    st.global.f32 [%a1+4], %f1; out: ret;
    """
    )
    done = run(kernel(body, ".u64 a"), {"a": np.array([3, 0], "f4")})
    assert done["a"].tolist() == [3, 3]


def _combined(name: str, bits: int, signed: bool) -> Callable[[int, int], int]:
    def value(each: int) -> int:
        return each - (each >> (bits - 1) << bits) if signed else each

    return {
        "add": lambda old, new: (old + new) % 2**bits,
        "min": lambda old, new: min(old, new, key=value),
        "max": lambda old, new: max(old, new, key=value),
        "and": lambda old, new: old & new,
        "or": lambda old, new: old | new,
        "xor": lambda old, new: old ^ new,
        "exch": lambda old, new: new,
        "inc": lambda old, new: 0 if old >= new else old + 1,
        "dec": lambda old, new: new if old == 0 or old > new else old - 1,
        "cas": lambda old, new: new if old == 3 else old,
    }[name]


INTEGER_ATOMICS = [
    row
    for row in table.TABLE.values()
    if row.kind in ("atomic", "reduce") and row.of[0][0] in "bsu"
    # Atomics of 16 bytes, of vectors and of mbarrier are among the third-party kernels; bulk
    # reductions and those of tensors have tests of their own.
    if not any(each in row.opcode for each in ("bf16", "b128", "mbarrier", "bulk", "tensor"))
]


@pytest.mark.parametrize("space", ["generic", "global", "shared"])
def test_colliding_integer_atomics_have_the_result_of_some_order(space: str) -> None:
    rng = np.random.default_rng(4)
    for row in (each for each in INTEGER_ATOMICS if each.space == space):
        name = row.opcode.replace(f".{space}", "").split(".")[1]
        kind = row.of[0]
        size = TYPE_BYTES[kind]
        step = _combined(name, 8 * size, kind[0] == "s")
        small = name in ("inc", "dec", "cas")
        values = rng.integers(0, 6 if small else 256, (96, size)).astype("u1")
        values[:, 1:] *= not small
        operand = values.view(f"u{size}")[:, 0]
        word = f"b{8 * size}"
        cell = "[cells]" if space == "shared" else "[%cell]"
        compare = "3, " if name == "cas" else ""
        result = "%old, " if row.kind == "atomic" else ""
        load_cell = f"ld.shared.{word} %old, [cells];" if space == "shared" else ""
        body = (
            START
            + f"""
        .shared .align 16 .b8 cells[16]; .reg .{word} %old, %new; .reg .b64 %cell;
        ld.param.u64 %cell, [cell]; ld.param.u64 %a1, [in]; mul.wide.u32 %a2, %r4, {size};
        add.u64 %a1, %a1, %a2; ld.global.{word} %new, [%a1];
        {row.opcode} {result}{cell}, {compare}%new; bar.sync 0;
        ld.param.u64 %a3, [out]; add.u64 %a3, %a3, %a2; st.global.{word} [%a3], %old;
        {load_cell} {f"st.global.{word} [%cell], %old;" if load_cell else ""} ret;
        """
        )
        arrays = {
            "in": operand,
            "cell": np.zeros(1, operand.dtype),
            "out": np.zeros(96, operand.dtype),
        }
        done = run(kernel(body, ".u64 in, .u64 cell, .u64 out"), arrays, block=(96, 1, 1))
        # Lanes at one address go in lane order, which is one of the orders that a GPU may take.
        left, found = 0, []
        for each in operand.tolist():
            found.append(left)
            left = step(left, each)
        assert done["cell"][0] == left, row.opcode
        if row.kind == "atomic":
            assert done["out"].tolist() == found, row.opcode


@pytest.mark.parametrize(
    "kind", ["f32", "f64", "noftz.f16", "noftz.bf16", "noftz.f16x2", "noftz.bf16x2"]
)
def test_floating_atomics_add(kind: str) -> None:
    ptx_type = kind.rpartition(".")[2]
    size = TYPE_BYTES[ptx_type]
    one = {"f32": 0x3F80_0000, "f64": 0x3FF0 << 48, "f16": 0x3C00, "bf16": 0x3F80}
    sixty_four = {"f32": 0x4280_0000, "f64": 0x4050 << 48, "f16": 0x5400, "bf16": 0x4280}
    part = ptx_type.removesuffix("x2")
    both = 0x10001 if ptx_type.endswith("x2") else 1
    for space in ("", ".global", ".shared"):
        cell = "[cells]" if space == ".shared" else "[%a1]"
        word = f"b{8 * size}"
        body = (
            START
            + f"""
        .shared .align 16 .b8 cells[16]; .reg .{word} %one, %old; ld.param.u64 %a1, [cell];
        mov.{word} %one, {one[part] * both};
        atom{space}.add.{kind} %old, {cell}, %one; red{space}.add.{kind} {cell}, %one; bar.sync 0;
        {f"ld.shared.{word} %old, [cells]; st.global.{word} [%a1], %old;" if "sh" in space else ""}
        ret;
        """
        )
        arrays = {"cell": np.zeros(1, f"u{size}")}
        done = run(kernel(body, ".u64 cell"), arrays, block=(32, 1, 1))
        assert done["cell"][0] == sixty_four[part] * both, space


def test_atomics_of_many_blocks_find_distinct_values() -> None:
    body = (
        START
        + """
    ld.param.u64 %a1, [cell]; ld.param.u64 %a2, [out]; mul.wide.u32 %a3, %r4, 4;
    add.u64 %a2, %a2, %a3; rem.u32 %r5, %r4, 3; mul.wide.u32 %a4, %r5, 4; add.u64 %a1, %a1, %a4;
    atom.global.add.u32 %r6, [%a1], 1; st.global.u32 [%a2], %r6; ret;
    """
    )
    arrays = {"cell": np.zeros(3, "u4"), "out": np.zeros(300, "u4")}
    done = run(kernel(body, ".u64 cell, .u64 out"), arrays, grid=(3, 1, 1), block=(100, 1, 1))
    assert done["cell"].tolist() == [100] * 3
    for start in range(3):
        assert sorted(done["out"][start::3]) == list(range(100))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 16), min_size=32, max_size=32))
def test_asynchronous_copies_fill_the_rest_with_zeros(sizes: list[int]) -> None:
    sizes = [size // 4 * 4 for size in sizes]
    body = (
        START
        + """
    .shared .align 16 .b8 tile[512]; ld.param.u64 %a1, [in]; ld.param.u64 %a2, [size];
    ld.param.u64 %a3, [out]; mul.wide.u32 %a4, %r1, 16; add.u64 %a1, %a1, %a4;
    add.u64 %a3, %a3, %a4; mul.wide.u32 %a5, %r1, 4; add.u64 %a2, %a2, %a5;
    ld.global.u32 %r5, [%a2]; mov.u32 %r6, tile; mad.lo.u32 %r6, %r1, 16, %r6;
    cp.async.cg.shared.global [%r6], [%a1], 16, %r5; cp.async.commit_group;
    cp.async.wait_group 0; ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r6];
    st.global.v4.u32 [%a3], {%r7, %r8, %r9, %r10};
    setp.lt.u32 %p1, %r1, 7;
    @%p1 cp.async.ca.shared.global [%r6], [%a1+4], 4;
    @!%p1 cp.async.ca.shared.global [%r6], [%a1], 8;
    cp.async.wait_all; ld.shared.u32 %r7, [%r6]; st.global.u32 [%a3], %r7; ret;
    """
    )
    given_words = np.arange(1, 129, dtype="u4").reshape(32, 4)
    arrays = {"in": given_words, "size": np.array(sizes, "u4"), "out": np.zeros_like(given_words)}
    done = run(kernel(body, ".u64 in, .u64 size, .u64 out"), arrays)
    for lane, size in enumerate(sizes):
        words = given_words[lane].tolist()
        kept = [word if 4 * place < size else 0 for place, word in enumerate(words)]
        assert done["out"][lane].tolist() == [words[lane < 7], *kept[1:]]


def test_written_elements_are_found_in_all_pieces_of_an_array() -> None:
    """Structures of 12 bytes, of which the pieces in which marks are read hold no whole number."""
    memory = GlobalMemory({"small": (10, 1), "points": (200_000 * 12, 12)})
    assert memory.unit_bytes == 1
    start = memory.find("points").address - memory.find("small").address
    chosen = np.array([0, 5461, 5462, 130_000, 199_999])
    memory.units_written[start + chosen * 12 + chosen % 12] = 1
    assert memory.elements_written("points").tolist() == chosen.tolist()
    assert memory.elements_written("small").size == 0
    pieces = np.zeros(200_000 * 12, np.bool_)
    for piece in memory.written_pieces("points"):
        pieces[piece] = True
    assert pieces[chosen * 12 + chosen % 12].all()
    assert np.count_nonzero(pieces) <= 5 << 16
