"""Every row of the table runs, and gives bit for bit what an NVIDIA H200 gives."""

import csv
import re
from typing import Any

import numpy as np
import pytest
from paths import DATA
from ptx import kernel, run
from row_kernels import INPUT_BYTES, LANES, OUTPUT_BYTES, digest, lane_kernel, operand_key, operands

from memlab.device.emulator.isa import rows
from memlab.device.emulator.isa import table as isa
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import TYPE_BYTES, PtxError, parse_ptx

MACRO_WORDS = (
    *("mma", "ldmatrix", "movmatrix", "stmatrix", "wmma", "mbarrier"),
    *("tex", "surf", "bulk", "tensor"),
)
ROWS = {
    opcode: row
    for opcode, row in isa.TABLE.items()
    # Rows of the tensor cores, and rows that only macros use, have tests of their own.
    if not opcode.startswith(MACRO_WORDS)
}
MOST_SOURCES = 4  # that the kernels of rows pass
COMPUTING = [  # products of warpgroups have tests of their own, as long as none was recorded
    row
    for row in ROWS.values()
    if row.kind in ("lanes", "warp")
    and not row.opcode.startswith("wgmma.")
    and len(row.of) <= MOST_SOURCES
]
ROWS_PER_KERNEL = 32  # of rows that are compiled together, which takes less time


def _hardware() -> dict[str, str]:
    lines = (DATA / "h200-instructions.csv").read_text().splitlines()
    return {row["opcode"]: row["crc32"] for row in csv.DictReader(lines[4:])}


# What the checksums leave out: approximations (their bounds are tested apart), addresses of
# windows (the emulator's own), packed and mixed float32 (not on an H200), `.sat` where it can do
# nothing, and rows that are younger than the recording, which `test_newer_rows` holds to other
# truths.
_NOT_COMPARED = re.compile(
    r"\w+\.(approx|full)|cvta|isspacep|mapa|getctarank|\w+(\.rn)?(\.ftz)?\.f32x2|cvt\.sat\.[su]\d+\.[su]\d+"
    r"|bmsk|szext|cvt\.pack|vabsdiff2|(min|max)\..*relu|cvt\.r.i\.bf16\.bf16|cvt\..*e[45]m[23]x2"
    r"|(add|sub|fma)(\.r[nzmp])?(\.sat)?\.f32\.b?f16|(neg|abs)\.ftz\.f16|cvt\..*satfinite"
)


def _families() -> dict[str, list[isa.Row]]:
    families: dict[str, list[isa.Row]] = {}
    for row in COMPUTING:
        families.setdefault(row.opcode.split(".")[0], []).append(row)
    return families


@pytest.mark.parametrize("family", _families())
def test_rows_agree_with_hardware(family: str) -> None:
    hardware, wrong = _hardware(), []
    groups: dict[Any, list[isa.Row]] = {}  # compiled together, which takes less time
    for row in _families()[family]:
        groups.setdefault(operand_key(row), []).append(row)
    for key, alike in groups.items():
        out = np.zeros((len(alike), LANES, OUTPUT_BYTES), np.uint8)
        done = run(lane_kernel(alike), {"in": operands(*key), "out": out}, block=(LANES, 1, 1))
        for row, output in zip(alike, done["out"], strict=True):
            expected = hardware.get(row.opcode)
            if expected is None:
                assert _NOT_COMPARED.match(row.opcode), f"{row.opcode} was not run on hardware"
            elif digest(row, output) != expected:
                wrong.append(row.opcode)
    assert not wrong


def _moves(row: isa.Row, first_out: int) -> str:
    """Copies a lane's first bytes to its output by way of the row's space and instruction."""
    size = TYPE_BYTES[(row.to or row.of)[0]]
    moved = size * row.vector
    words = [f"%r{index}" for index in range(row.vector)]
    operand = words[0] if row.vector == 1 else f"{{{', '.join(words)}}}"
    space = row.space.partition("::")[0]
    place, declaration = "", ""
    if space == "shared":
        place = "%own"
    elif space in ("local", "param"):
        place, declaration = "own", f".{space} .align 32 .b8 own[64];"

    lines = [f".reg .b16 %byte; .reg .b64 %to; .reg .b{max(8 * size, 16)} %r<8>; {declaration}"]
    lines.append(f"add.u64 %to, %out, {first_out};")
    if row.kind == "load":
        if place:
            lines += [_copy_byte(i, "global", "%in", space, place) for i in range(moved)]
        lines.append(f"{row.opcode} {operand}, [{place or '%in'}];")
        for index, word in enumerate(words):
            lines.append(f"st.global.b{8 * size} [%to+{size * index}], {word};")
    else:
        for index, word in enumerate(words):
            lines.append(f"ld.global.b{8 * size} {word}, [%in+{size * index}];")
        lines.append(f"{row.opcode} [{place or '%to'}], {operand};")
        if place:
            lines += [_copy_byte(i, space, place, "global", "%to") for i in range(moved)]
    return "\n".join(["{", *lines, "}"])


def _copy_byte(at: int, space: str, of: str, to_space: str, to: str) -> str:
    return f"ld.{space}.b8 %byte, [{of}+{at}]; st.{to_space}.b8 [{to}+{at}], %byte;"


@pytest.mark.parametrize("space", ["generic", "global", "shared", "local", "param::func"])
def test_loads_and_stores_move_their_bytes(space: str) -> None:
    rng = np.random.default_rng(0)
    given = rng.integers(0, 256, (32, INPUT_BYTES)).astype(np.uint8)
    moving = [r for r in ROWS.values() if r.kind in ("load", "store") and r.space == space]
    for start in range(0, len(moving), ROWS_PER_KERNEL):
        together = moving[start : start + ROWS_PER_KERNEL]
        body = (
            ".shared .align 32 .b8 all[2048]; .reg .b64 %in, %out, %at, %own; .reg .b32 %lane;"
            "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %lane, %tid.x;"
            "mul.wide.u32 %at, %lane, 64; add.u64 %in, %in, %at; add.u64 %out, %out, %at;"
            "mov.u64 %own, all; add.u64 %own, %own, %at;"
        )
        body += "".join(_moves(row, place * given.size) for place, row in enumerate(together))
        out = np.zeros((len(together), *given.shape), np.uint8)
        done = run(kernel(body + "ret;", ".u64 in, .u64 out"), {"in": given, "out": out})
        for row, output in zip(together, done["out"], strict=True):
            moved = TYPE_BYTES[(row.to or row.of)[0]] * row.vector
            assert np.array_equal(output[:, :moved], given[:, :moved]), row.opcode
            assert not output[:, moved:].any(), row.opcode


@pytest.mark.parametrize("space", ["const", "param"])
def test_loads_from_read_only_spaces(space: str) -> None:
    given = bytes(range(100, 164))
    values = ", ".join(map(str, given))
    for row in ROWS.values():
        if row.kind == "load" and row.space == space:
            size = TYPE_BYTES[row.to[0]]
            bits = 8 * size
            words = [f"%r{index}" for index in range(row.vector)]
            operand = words[0] if row.vector == 1 else f"{{{', '.join(words)}}}"
            where = "table" if space == "const" else "given"
            stores = "".join(
                f"st.global.b{bits} [%out+{size * index}], {word};"
                for index, word in enumerate(words)
            )
            body = (
                f".reg .b64 %out; .reg .b{max(bits, 16)} %r<8>; ld.param.u64 %out, [out];"
                f"{row.opcode} {operand}, [{where}+16]; {stores} ret;"
            )
            table = f".const .align 16 .b8 table[64] = {{{values}}};"
            text = kernel(body, ".u64 out, .align 16 .b8 given[64]", table)
            done = run(text, {"out": np.zeros(32, np.uint8)}, [given], block=(1, 1, 1))
            moved = size * row.vector
            assert bytes(done["out"][:moved]) == given[16 : 16 + moved], row.opcode


_ORDERING = {
    "bar.warp.sync": " -1",
    "cp.async.wait_group": " 0",
    "nanosleep.u32": " 20",
    "pmevent": " 1",
    "setmaxnreg.inc.sync.u32": " 64",
    "setmaxnreg.dec.sync.u32": " 64",
    "discard.global.L2": " [%at], 128",
    "discard.L2": " [%at], 128",
}


def test_rows_without_effect_change_nothing() -> None:
    for row in ROWS.values():
        if row.kind == "nothing":
            rest = " [%at]" if row.opcode.startswith("prefetch") else ""
            line = f"{row.opcode}{_ORDERING.get(row.opcode, rest)};"
            body = f".reg .b64 %at; ld.param.u64 %at, [a]; {line} ret;"
            done = run(kernel(body, ".u64 a"), {"a": np.arange(32)})
            assert np.array_equal(done["a"], np.arange(32)), row.opcode


def test_no_row_is_left_untested() -> None:
    # Atomics and reductions are in test_memory, control and macros in test_control, the heap in
    # test_heap.
    tested = {"lanes", "warp", "load", "store", "nothing", "atomic", "reduce"}
    tested |= {"branch", "exit", "barrier", "trap", "call", "macro", "block", "arrive", "print"}
    tested |= {"heap"}
    assert {row.kind for row in isa.TABLE.values()} <= tested


def test_an_opcode_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "TABLE", rows.RowTable())
    rows.op("add{,.sat}.{s32,f32}", "{1} {1} -> {1}", np.add)
    assert len(rows.TABLE) == 4
    rows.op("{sub,add}.f32", "f32 f32 -> f32", np.subtract)
    with pytest.raises(ValueError, match=r"add\.f32 has a row already"):
        list(rows.TABLE)


def test_qualifiers_without_effect_are_ignored() -> None:
    plain = isa.find_row("ld.global.f32")
    assert isa.find_row("ld.relaxed.gpu.global.L2::128B.f32") is plain
    assert isa.find_row("st.shared::cta.u32") is isa.find_row("st.shared.u32")
    assert isa.find_row("bra.uni") is isa.find_row("bra")


def test_an_unknown_opcode_is_named_with_its_lines() -> None:
    source = ["__global__ void k() {", "    fence();"]
    text = kernel(".loc 1 2 5\ntcgen05.fence::before_thread_sync;\nret;")
    with pytest.raises(PtxError) as error:
        load_program(parse_ptx(text), "k", source)
    assert str(error.value) == (
        "the emulator has no opcode tcgen05.fence::before_thread_sync (PTX line 8, source line 2: "
        "fence();): products in tensor memory need a GPU; Triton does without it on --device "
        "a100, or for arch='sm80'"
    )


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (
            "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%r0], [%r0], 16, %r0",
            "without a mask",
        ),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "use m16n8k8 or m16n8k16"),
        (
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%r0, %r0}, 0, 0, 0, 0, 1, 1, 1",
            "others need a GPU",
        ),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r0], 0, 0, %r1, 1", "tensor memory need a GPU"),
        ("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p0, %r0", "canceling clusters"),
        ("mov.u32 %r0, %pm3", "driver of a GPU"),
    ],
)
def test_unsupported_instructions_come_with_advice(line: str, advice: str) -> None:
    with pytest.raises(PtxError, match=f"the emulator has no .*source line 1: k.*{advice}"):
        load_program(
            parse_ptx(kernel(f".reg .b32 %r<2>;\n.loc 1 1 1\n{line};\nret;")), "k", ["k()"]
        )


@pytest.mark.parametrize("shown", ["%warpsize", "warp_sz"])
def test_undefined_ptx_is_refused_by_name(shown: str) -> None:
    text = kernel(f".reg .b32 %r<2>;\nmov.u32 %r0, {shown};\nret;", ".u64 a")
    with pytest.raises(PtxError, match=shown):
        run(text, {"a": np.zeros(1, "u4")})


def test_a_wrong_number_of_operands_is_refused() -> None:
    with pytest.raises(PtxError, match="has 4 operands, the emulator knows it with 3"):
        load_program(parse_ptx(kernel(".reg .f32 %f<4>; add.f32 %f0, %f1, %f2, %f3; ret;")), "k")
