"""Loops in LLVM's code, as context managers around their bodies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

I64 = ir.IntType(64)


@contextmanager
def bit_loop(b: ir.IRBuilder, bits: ir.Value) -> Iterator[ir.Value]:
    """A loop over the set bits of an integer, lowest first; the body gets their places as `i64`."""
    before = b.block
    head, body, end = (b.append_basic_block(f"bits.{part}") for part in ("head", "body", "end"))
    b.branch(head)
    b.position_at_end(head)
    left = b.phi(bits.type, "bits.left")
    left.add_incoming(bits, before)
    b.cbranch(b.icmp_unsigned("!=", left, bits.type(0)), body, end)
    b.position_at_end(body)
    place = b.cttz(left, ir.IntType(1)(1))
    yield place if place.type == I64 else b.zext(place, I64)
    left.add_incoming(b.and_(left, b.sub(left, left.type(1))), b.block)
    b.branch(head)
    b.position_at_end(end)


@contextmanager
def count_loop(b: ir.IRBuilder, count: ir.Value) -> Iterator[ir.Value]:
    """A loop whose body gets the numbers below an `i64`."""
    before = b.block
    head, body, end = (b.append_basic_block(f"count.{part}") for part in ("head", "body", "end"))
    b.branch(head)
    b.position_at_end(head)
    number = b.phi(I64, "count.number")
    number.add_incoming(I64(0), before)
    b.cbranch(b.icmp_unsigned("<", number, count), body, end)
    b.position_at_end(body)
    yield number
    number.add_incoming(b.add(number, I64(1)), b.block)
    b.branch(head)
    b.position_at_end(end)
