"""What the emulator's instructions did, added up: over the grid, by source line, in the loops."""

from __future__ import annotations

from collections.abc import Sequence

from memlab.device.emulator.counters import Tally
from memlab.device.emulator.parser import Address, Register
from memlab.device.emulator.program import Program, Step, in_loops
from memlab.device.measurement import Counters, LineCounters, Region


def whole_grid(program: Program, tally: Tally) -> Counters:
    """Sum what the instructions did, by kind."""
    sums: dict[str, int] = {}

    def add(name: str, value: int) -> None:
        sums[name] = sums.get(name, 0) + value

    for index, step in enumerate(program.steps):
        row = step.row
        add("thread_instructions", tally.lanes[index])
        add("warp_instructions", tally.warps[index])
        if row.flops:
            pipe = f"tensor_{row.tensor}" if row.tensor else "fp64" if "f64" in row.to else "fp32"
            add(f"flop_{pipe}", row.flops * tally.lanes[index])
        direction = {"load": "load", "store": "store"}.get(row.kind)
        if direction is None:
            continue
        if row.space in ("global", "generic"):
            add(f"global_{direction}_requests", tally.requests[index])
            add(f"global_{direction}_sectors", tally.sectors[index])
            add(f"requested_{direction}_bytes", tally.bytes[index])
            add(f"global_{direction}_lines", tally.wavefronts[index])
            add(f"global_{direction}_used_bytes", tally.used[index])
        elif row.space == "local":
            add(f"local_{direction}_sectors", tally.sectors[index])
        elif row.space == "const" and _address_is_computed(step):
            add("constant_load_requests", tally.requests[index])
            add("constant_load_passes", tally.wavefronts[index])
        elif row.space == "shared":
            add(f"shared_{direction}_instructions", tally.requests[index])
            add(f"shared_{direction}_wavefronts", tally.wavefronts[index])
            add("shared_excessive_wavefronts", tally.excessive[index])
    return Counters(**sums)


def _address_is_computed(step: Step) -> bool:
    """Whether an access is a load in the machine code too, not an operand of the constant bank."""
    return any(
        isinstance(each, Address) and isinstance(each.base, Register)
        for each in step.instruction.operands
    )


def l1_wavefronts(program: Program, tally: Tally) -> int:
    """Add up the passes through the L1 / shared port."""
    return sum(
        tally.wavefronts[index]
        for index, step in enumerate(program.steps)
        if step.row.space in ("shared", "global", "generic")
    )


def by_line(program: Program, tally: Tally, source: list[str]) -> tuple[LineCounters, ...]:
    """The counters of each source line that did anything."""
    lines: dict[int, dict[str, int]] = {}
    for index, step in enumerate(program.steps):
        line = lines.setdefault(step.instruction.source_line, {})
        named = {
            "thread_instructions": tally.lanes[index],
            "warp_instructions": tally.warps[index],
        }
        if step.row.flops:
            named["flop"] = step.row.flops * tally.lanes[index]
        if step.row.space in ("global", "generic"):
            named["global_requests"] = tally.requests[index]
            named["global_sectors"] = tally.sectors[index]
            named["global_lines"] = tally.wavefronts[index]
            named["global_used_bytes"] = tally.used[index]
            named["requested_bytes"] = tally.bytes[index]
        elif step.row.space == "shared":
            named["shared_instructions"] = tally.requests[index]
            named["shared_wavefronts"] = tally.wavefronts[index]
            named["shared_excessive_wavefronts"] = tally.excessive[index]
        for name, value in named.items():
            line[name] = line.get(name, 0) + value
    return tuple(
        LineCounters(number, source[number - 1] if 0 < number <= len(source) else "", **counts)
        for number, counts in sorted(lines.items())
    )


def region(program: Program, tally: Tally) -> Region:
    """Add up the loops, or the whole program where they lack arithmetic or global accesses."""

    def total(steps: Sequence[bool], of_loops: bool) -> Region:
        flop = moved = 0
        for index, step in enumerate(program.steps):
            if steps[index]:
                flop += step.row.flops * tally.lanes[index]
                moved += tally.bytes[index] if step.row.space in ("global", "generic") else 0
        return Region(flop, moved, of_loops)

    loops = total(in_loops(program), True)
    if loops.flop and loops.requested_bytes:
        return loops
    return total([True] * len(program.steps), False)
