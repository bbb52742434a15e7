"""Kernels that execute rows of the instruction table, generated from the rows.

A lane reads operands 16 bytes apart. Each row is executed on them, and what it gives is stored.
"""

import random
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.ptx.parser import TYPE_BYTES

LANES = 512  # every pair of 16 edge values, then as many random ones
OPERAND_BYTES, INPUT_BYTES, OUTPUT_BYTES = 16, 64, 32

_HEAD = """.version 8.8
.target sm_100
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
.reg .b64 %in, %out, %at; .reg .b32 %lane, %word; .reg .b16 %half;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %lane, %tid.x;
mul.wide.u32 %at, %lane, 64; add.u64 %in, %in, %at;
mul.wide.u32 %at, %lane, 32; add.u64 %out, %out, %at;
{body}
ret;
}}
"""

_EVERY_LANE = "-1"
_PLACES = {"shl": 1, "shr": 1, "bfe": 1, "shfl": 1, "fns": 1, "shf": 2, "bfi": 2}
"""The first operand of an instruction that is a shift amount, bit position or lane."""
_EDGES = {
    "f16": "0000 8000 3c00 bc00 7c00 fc00 7e00 7fff 0001 8001 03ff 0400 7bff 3555 4248 c500",
    "bf16": "0000 8000 3f80 bf80 7f80 ff80 7fc0 7fff 0001 8001 007f 0080 7f7f 3eab 4049 c0a0",
    "f32": "00000000 80000000 3f800000 bf800000 7f800000 ff800000 7fc00000 7fffffff "
    "00000001 80000001 007fffff 00800000 7f7fffff 3eaaaaab 4f7ffffe c0200000",
    "f64": "0000000000000000 8000000000000000 3ff0000000000000 bff0000000000000 "
    "7ff0000000000000 fff0000000000000 7ff8000000000000 3ff8000000000000 "
    "0000000000000001 8000000000000001 0010000000000000 7fefffffffffffff "
    "3fd5555555555555 41f0000000080000 c004000000000000 43e02189d2aa8000",
}


def _register(ptx_type: str) -> str:
    return ptx_type if ptx_type == "pred" else f"b{max(TYPE_BYTES[ptx_type] * 8, 16)}"


def written_operands(row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Types of the destinations and sources that the instruction's text names."""
    to = row.to[:-1] if "out" in row.carry else row.to
    return to, row.of[:-1] if "in" in row.carry else row.of


def operand_key(row: Row) -> tuple[tuple[str, ...], str]:
    """What the operands of a row depend on: their types, and a name for which they are special."""
    name = row.opcode.split(".")[0]
    return written_operands(row)[1], name if name in _PLACES else ""


def lane_kernel(rows: Sequence[Row]) -> str:
    """A kernel, `k`, of rows that compute from registers, of kind `lanes` or `warp`.

    Args:
        rows: Rows of one `operand_key`.

    Returns:
        The PTX. The parameters are the addresses of the operands, shape (lanes, 64) in bytes, and
        of the results, shape (rows, lanes, 32).
    """
    body = []
    for number, kind in enumerate(operand_key(rows[0])[0]):
        at, register = f"[%in+{OPERAND_BYTES * number}]", f"%s{number}"
        body.append(f".reg .{_register(kind)} {register};")
        if kind == "pred":
            body.append(f"ld.global.u8 %half, {at}; and.b16 %half, %half, 1;")
            body.append(f"setp.ne.u16 {register}, %half, 0;")
        elif kind == "b128":
            body.append(f".reg .b64 %low, %high; ld.global.v2.b64 {{%low, %high}}, {at};")
            body.append(f"mov.b128 {register}, {{%low, %high}};")
        else:
            body.append(f"ld.global.b{TYPE_BYTES[kind] * 8} {register}, {at};")
    for place, row in enumerate(rows):
        body += ["{", *_executed(row, place * LANES * OUTPUT_BYTES), "}"]
    return _HEAD.format(body="\n".join(body))


def _executed(row: Row, first_out: int) -> list[str]:
    """The execution of a row, whose results are stored from a byte on."""
    opcode, pair = row.opcode.removesuffix(" d|p"), row.opcode.endswith(" d|p")
    to, of = written_operands(row)
    body, sources = [], [f"%s{number}" for number in range(len(of))]
    if opcode == "lop3.b32":
        sources[3] = "0x3a"  # the table must be a literal
    if opcode.startswith(("shfl", "vote", "match", "redux", "elect")):
        sources[-1] = _EVERY_LANE
    targets = [f"%d{number}" for number in range(len(to))]
    for kind, target in zip(to, targets, strict=True):
        body.append(f".reg .{_register(kind)} {target};")
        if kind in ("s8", "u8", "b8"):
            body.append(f"mov.b16 {target}, 0;")
    if "in" in row.carry:
        body.append("ld.global.u32 %word, [%in+48]; and.b32 %word, %word, 1;")
        borrow = opcode.startswith("sub")
        body.append("sub.cc.u32 %word, 0, %word;" if borrow else "add.cc.u32 %word, %word, -1;")
    body.append(f"{opcode} {', '.join([('|' if pair else ', ').join(targets), *sources])};")
    if "out" in row.carry:
        step = "subc" if opcode.startswith("sub") else "addc"
        body.append(f"{step}.u32 %word, 0, 0; and.b32 %word, %word, 1;")
        body.append(f"st.global.u32 [%out+{first_out + OPERAND_BYTES}], %word;")
    for number, (kind, target) in enumerate(zip(to, targets, strict=True)):
        at = f"[%out+{first_out + OPERAND_BYTES * number}]"
        if kind == "pred":
            body.append(f"selp.u32 %word, 1, 0, {target}; st.global.u32 {at}, %word;")
        elif kind == "b128":
            body.append(f".reg .b64 %lower, %upper; mov.b128 {{%lower, %upper}}, {target};")
            body.append(f"st.global.v2.b64 {at}, {{%lower, %upper}};")
        else:
            body.append(f"st.global.b{TYPE_BYTES[kind] * 8} {at}, {target};")
    return body


def _edge(kind: str, number: int) -> bytes:
    size = TYPE_BYTES[kind]
    if kind in ("f16x2", "bf16x2"):
        return _edge(kind[:-2], number) + _edge(kind[:-2], (number + 13) % 16)
    if kind in _EDGES:
        return bytes.fromhex(_EDGES[kind].split()[number])[::-1]
    top = 1 << (8 * size)
    values = (0, 1, 2, 3, 7, 31, 32, 33, -1, -2, top // 2, top // 2 - 1, top // 2 + 1, 90, top // 3)
    return ((*values, 12)[number] % top).to_bytes(size, "little")


def _random(kind: str, source: random.Random) -> bytes:
    """Any bits, but floating-point numbers of moderate size."""
    size = TYPE_BYTES[kind]
    bits = source.getrandbits(8 * size)
    spread = {"f16": (10, 15, 8), "bf16": (7, 127, 12), "f32": (23, 127, 12), "f64": (52, 1023, 40)}
    if kind in ("f16x2", "bf16x2"):
        return _random(kind[:-2], source) + _random(kind[:-2], source)
    if kind in spread:
        fraction, bias, reach = spread[kind]
        exponent = bias + source.randrange(-reach, reach)
        sign = bits >> (8 * size - 1)
        bits = bits % (1 << fraction) | exponent << fraction | sign << (8 * size - 1)
    return bits.to_bytes(size, "little")


def operands(types: Sequence[str], name: str) -> Any:
    """The bytes that the lanes read, shape (lanes, 64), for an `operand_key`."""
    source = random.Random(" ".join(types))
    first_place = _PLACES.get(name, len(types))
    undefined_beyond_a_byte = name in ("bfe", "bfi", "fns")
    lanes = bytearray()
    for lane in range(LANES):
        own = bytearray(source.randbytes(INPUT_BYTES))
        for number, kind in enumerate(types):
            edge = (lane // 16, lane % 16)[number] if number < 2 else source.randrange(16)
            value = _edge(kind, edge % 16) if lane < LANES // 2 else _random(kind, source)
            if number >= first_place and (undefined_beyond_a_byte or lane >= LANES // 2):
                value = bytes([value[0] % 80, 0, 0, 0])
            if name == "fns" and number == 2:
                value = int(value[0] % 9 - 4).to_bytes(4, "little", signed=True)
            own[OPERAND_BYTES * number : OPERAND_BYTES * number + len(value)] = value
        lanes += own
    return np.frombuffer(bytes(lanes), np.uint8).reshape(LANES, INPUT_BYTES)


def digest(row: Row, output: Any) -> str:
    """A checksum of the values that the lanes stored; all NaNs count as equal."""
    to, _ = written_operands(row)
    checksum = 0
    for number, kind in enumerate(to):
        size = 4 if kind == "pred" else TYPE_BYTES[kind]
        start = OPERAND_BYTES * number
        values = np.ascontiguousarray(output[:, start : start + size])
        part = kind.removesuffix("x2")
        infinite = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F80_0000, "f64": 0x7FF0 << 48}.get(
            part
        )
        if infinite is not None:
            bits = values.view(f"u{TYPE_BYTES[part]}")
            sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
            nan = (bits & ~sign) > bits.dtype.type(infinite)
            values = np.where(nan, ~sign, bits)
        checksum = zlib.crc32(values.tobytes(), checksum)
    if "out" in row.carry:
        checksum = zlib.crc32(output[:, OPERAND_BYTES : OPERAND_BYTES + 4].tobytes(), checksum)
    return f"{checksum:08x}"
