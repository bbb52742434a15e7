"""Loops in code under construction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

_I64 = ir.IntType(64)


@contextmanager
def counted_loop(b: ir.IRBuilder, count: ir.Value, name: str = "loop") -> Iterator[ir.Value]:
    """A loop over 0 <= i < count; the body is written inside, with `i` as an `i64`.

    Values computed in the body do not leave it: keep them in memory.
    """
    before = b.block
    head, body, end = (b.append_basic_block(f"{name}.{part}") for part in ("head", "body", "end"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(_I64, f"{name}.i")
    index.add_incoming(_I64(0), before)
    b.cbranch(b.icmp_signed("<", index, count), body, end)
    b.position_at_end(body)
    yield index
    index.add_incoming(b.add(index, _I64(1)), b.block)
    b.branch(head)
    b.position_at_end(end)


@contextmanager
def bit_loop(b: ir.IRBuilder, bits: ir.Value, name: str = "bits") -> Iterator[ir.Value]:
    """A loop over the set bits of an integer, lowest first; the body gets their places as `i64`."""
    before = b.block
    head, body, end = (b.append_basic_block(f"{name}.{part}") for part in ("head", "body", "end"))
    b.branch(head)
    b.position_at_end(head)
    left = b.phi(bits.type, f"{name}.left")
    left.add_incoming(bits, before)
    b.cbranch(b.icmp_unsigned("!=", left, bits.type(0)), body, end)
    b.position_at_end(body)
    place = b.cttz(left, ir.IntType(1)(1))
    yield place if place.type == _I64 else b.zext(place, _I64)
    left.add_incoming(b.and_(left, b.sub(left, left.type(1))), b.block)
    b.branch(head)
    b.position_at_end(end)
