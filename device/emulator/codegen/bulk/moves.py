"""The machine code that moves or combines the bytes of bulk copies."""

from __future__ import annotations

from llvmlite import ir

from memlab.device.emulator.codegen.bulk.loops import bit_loop, count_loop
from memlab.device.emulator.isa.asynchronous.bulk_copies import element_of
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.isa.values import Value, element_type, internal_function, intrinsic

BYTE, I1, I32, I64 = (ir.IntType(bits) for bits in (8, 1, 32, 64))
POINTER = ir.PointerType()


def bulk_function(b: ir.IRBuilder, row: Row) -> ir.Function:
    """`bulk.OPCODE(mask, places, sources, sizes)`: moves or combines bytes, lane by lane."""

    def write(
        b: ir.IRBuilder, mask: ir.Value, places: ir.Value, sources: ir.Value, sizes: ir.Value
    ) -> None:
        with bit_loop(b, mask) as lane:
            place, source = (
                b.load(b.gep(start, [lane], source_etype=I64), typ=POINTER)
                for start in (places, sources)
            )
            size = b.zext(b.load(b.gep(sizes, [lane], source_etype=I32), typ=I32), I64)
            if row.function is None:
                kinds = [POINTER, POINTER, I64, I1]
                move = intrinsic(b, "llvm.memmove", ir.VoidType(), kinds, "p0.p0.i64")
                b.call(move, [place, source, size, I1(0)])
            else:
                element = element_type(element_of(row))
                width = element.bits // 8
                with count_loop(b, b.udiv(size, I64(width))) as number:
                    here, there = (
                        b.gep(start, [b.mul(number, I64(width))], source_etype=BYTE)
                        for start in (place, source)
                    )
                    old, new = (
                        Value(b, b.load(at, typ=element.ir, align=width), element)
                        for at in (here, there)
                    )
                    b.store(row.function(old, new).ir, here, align=width)
        b.ret_void()

    return internal_function(
        b, f"bulk.{row.opcode}", ir.VoidType(), [I32, POINTER, POINTER, POINTER], write
    )
