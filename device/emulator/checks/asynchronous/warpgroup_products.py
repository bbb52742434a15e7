"""Products of warpgroups: registers that are used before they were waited for, and missing fences.

A `wgmma.mma_async` may read and write its registers until `wgmma.wait_group` completes its group.
Till then its warps must not access them, but for products of one shape that add to the same
accumulator; and `wgmma.fence` must lie between other accesses to registers and the product (PTX
ISA, "wgmma.mma_async", "wgmma.fence"). Both are found in the program, on any of its paths; only
what a warp then executes is reported.

Compilers move arithmetic over these instructions and copy accumulators before each product, and
ptxas sees to both. So a copy of an accumulator stands for it, and of the registers written after
the fence only those count that were loaded or came from other lanes, whose order compilers keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from memlab.device.emulator.isa.asynchronous.warpgroup import is_product, product_registers
from memlab.device.emulator.program.code_layout import successors
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
)
from memlab.device.emulator.ptx.parser import Immediate, registers_of

_OPEN = 0  # the age of a group that is not committed; each later commit adds 1


@dataclass(frozen=True)
class ProductMistake:
    """An instruction that breaks the rules of a product.

    Attributes:
        kind: `missing wait` or `missing fence`.
        product: The position of the product.
    """

    kind: str
    product: int


@dataclass(frozen=True)
class _State:
    """What is known before an instruction, of the worst path that leads to it.

    Attributes:
        results: By register that a product writes: the age of its group, and the product.
        inputs: The same by register that a product reads.
        unfenced: The registers that were written since the last fence.
        has_fence: Whether there was one.
    """

    results: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    inputs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unfenced: frozenset[str] = frozenset()
    has_fence: bool = False

    def joined(self, other: _State) -> _State:
        """Either of two states."""
        return _State(
            _youngest(self.results, other.results),
            _youngest(self.inputs, other.inputs),
            self.unfenced | other.unfenced,
            self.has_fence and other.has_fence,
        )


@lru_cache(maxsize=32)
def find_product_mistakes(program: Program) -> Mapping[int, ProductMistake]:
    """The mistakes of a program by position; an innocent program has none."""
    steps = program.steps
    if not any(is_product(step.row.opcode) for step in steps):
        return {}
    states: dict[int, _State] = {0: _State()}
    waiting = [0]
    while waiting:
        index = waiting.pop()
        after = _after(steps[index], index, states[index])
        for following in successors(steps, index):
            known = states.get(following)
            joined = after if known is None else known.joined(after)
            if joined != known and following < len(steps):
                states[following] = joined
                waiting.append(following)
    found = {}
    for index, state in sorted(states.items()):
        mistake = next(_mistakes(steps, index, state), None)
        if mistake is not None:
            found[index] = mistake
    return found


def _mistakes(
    steps: Sequence[DecodedInstruction], index: int, state: _State
) -> Iterator[ProductMistake]:
    """The mistakes of one instruction."""
    step = steps[index]
    read, written = set(step.registers_read), set(step.registers_written)
    if is_product(step.row.opcode):
        own, factors = map(set, product_registers(step.instruction))
        shape = _shape(step)
        pending = own & state.results.keys()
        read -= {name for name in pending if _shape(steps[state.results[name][1]]) == shape}
        written = set()
        if not state.has_fence or not state.unfenced.isdisjoint(own | factors):
            yield ProductMistake("missing fence", index)
    elif _is_copy(step):
        written = set() if read & state.results.keys() else written & state.results.keys()
        read = set()
    for name in sorted(read & state.results.keys()):
        yield ProductMistake("missing wait", state.results[name][1])
    for name in sorted(written & {**state.inputs, **state.results}.keys()):
        yield ProductMistake("missing wait", {**state.inputs, **state.results}[name][1])


def _after(step: DecodedInstruction, index: int, state: _State) -> _State:
    """The state after an instruction."""
    row = step.row
    if row.opcode == "wgmma.fence.sync":
        return _State(state.results, state.inputs, has_fence=True)
    if row.opcode == "wgmma.commit_group.sync":
        return _aged(state)
    if row.opcode == "wgmma.wait_group.sync":
        (count,) = step.instruction.operands
        but = count.bits if isinstance(count, Immediate) else 0
        return _State(
            _since(state.results, but), _since(state.inputs, but), state.unfenced, state.has_fence
        )
    results, inputs, unfenced = dict(state.results), dict(state.inputs), set(state.unfenced)
    written = set(step.registers_written)
    copied = _copied(step)
    pending = [state.results[name] for name in copied if name in state.results]
    for name in written:
        results.pop(name, None)
        inputs.pop(name, None)
        if is_product(row.opcode):
            results[name] = _OPEN, index
        elif pending:
            results[name] = min(pending)
    if is_product(row.opcode):
        inputs |= dict.fromkeys(product_registers(step.instruction)[1], (_OPEN, index))
        unfenced -= written
    elif row.kind in ("load", "atomic", "warp") or copied & unfenced:
        unfenced |= written
    else:
        unfenced -= written
    return _State(results, inputs, frozenset(unfenced), state.has_fence)


def _aged(state: _State) -> _State:
    results, inputs = (
        {name: (age + 1, product) for name, (age, product) in pending.items()}
        for pending in (state.results, state.inputs)
    )
    return _State(results, inputs, state.unfenced, state.has_fence)


def _since(pending: Mapping[str, tuple[int, int]], groups: int) -> Mapping[str, tuple[int, int]]:
    """What belongs to the latest committed groups, or to none yet."""
    return {name: known for name, known in pending.items() if known[0] <= groups}


def _youngest(
    first: Mapping[str, tuple[int, int]], second: Mapping[str, tuple[int, int]]
) -> Mapping[str, tuple[int, int]]:
    names: Collection[str] = first.keys() | second.keys()
    return {
        name: min(pending[name] for pending in (first, second) if name in pending) for name in names
    }


def _is_copy(step: DecodedInstruction) -> bool:
    return step.row.opcode.startswith("mov.")


def _copied(step: DecodedInstruction) -> set[str]:
    """The registers that an instruction copies."""
    if not _is_copy(step):
        return set()
    return {name for o in step.instruction.operands[1:] for name in registers_of(o)}


def _shape(step: DecodedInstruction) -> tuple[str, str]:
    """The shape and the type of the accumulators of a product."""
    _, _, shape, total, *_ = step.row.opcode.split(".")
    return shape.partition("k")[0], total
