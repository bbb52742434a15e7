"""The machine code of a launch as records of the simulation: what each instruction takes."""

from __future__ import annotations

import re

from memlab.device.emulator.codegen.layout import CONSTANT_LINE_BYTES
from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.machine_code.retries import SWAP_WAVEFRONTS, is_swap
from memlab.device.machine_code.runtime_calls import RUNTIME_FUNCTIONS
from memlab.device.properties import (
    LINE_BYTES,
    SECTOR_BYTES,
    SHARED_BANK_BYTES,
    WARP_SIZE,
    DeviceProperties,
    clock_hz,
    figure_at,
)
from memlab.device.sm_model.barriers import sites_of
from memlab.device.sm_model.device_rates import (
    BEFORE_L1_CLOCKS,
    L2_ACCESS_SECTORS,
    l2_latency_table,
    message_clocks,
    prefetched_clocks,
    remote_sector_clocks,
)
from memlab.device.sm_model.pipes import (
    Issue,
    awaited_of,
    dispatch_clocks,
    is_device_fence,
    issue_of,
    product_wavefronts,
    resolving_clocks,
    throttle_of,
)
from memlab.device.sm_model.profile import Access, LaunchProfile
from memlab.device.sm_model.records import FENCES, READ_WINDOW_CLOCKS, SCHEDULERS, Kind, Unit
from memlab.device.sm_model.registers import register_reads
from memlab.device.sm_model.simulation import CODE_LINE_BYTES, Steps, empty_steps

_LONE_STORE_SECTORS = {"4": 1.02, "8": 1.37}
"""What a whole sector counts that a request stores without its neighbours in the line, by the lines
of the request: 4096 sectors of each SM, 32 times, in pieces of 32 bytes to rows 16 KiB apart, over
the time of whole lines (tests/data/h200-row-stores.csv). Of parts of sectors nothing was measured:
they are taken to be like reads."""
_AWAITED_SHARES = {
    "1": 1.0,
    "4": 0.98,
    "8": 0.96,
    "16": 0.87,
    "33": 0.81,
    "66": 0.75,
    "264": 0.74,
}
"""What is left of the time that a line from DRAM takes longer than one of the L2, in the mean of
the blocks that read it in step, by their number: on an H100 they took 757 clocks alone, 645
together, and 328 where the L2 had it (`benchmarks/shared_streams.cu`,
docs/results/h100-shared-streams.csv)."""
_PART_STORE_SECTORS = {"1": 2.16, "2": 1.50, "4": 1.27}
"""What a sector counts of which a request stores only a part, by the sectors of a line: on all SMs
of an H200, such sectors of 8 lines left in 3.9, 2.7 and 2.3 clocks
(tests/data/h200-merged-stores.csv), over the 1.81 of `l2_write_bytes_per_clock`."""
_REWRITTEN_SECTORS = 145 / 114
"""What a sector counts that a warp stores to over and over: 4 or 8 blocks of 256 threads on each SM
of an H200 stored 114 sectors/ns to lines of their own in the mean, and 145 to lines that move on
(`benchmarks/stored_again.cu`, tests/data/h200-stored-again.csv): some slices of the L2 have more of
these lines than others."""
_MOSTLY_WHOLE_BYTES = 28.0  # of a request's sectors, in the mean: most are stored whole
_COMMON_STORE_S = 0.124e-9
"""The time between stores of all warps to one word, many by each (an H200, stores in
docs/results/h200-contended-words.csv)."""
_FIRST_COMMON_STORE_S = 0.31e-9
"""The same where each warp stores to it once, in grids of several waves
(`benchmarks/common_stores.cu`, tests/data/h200-common-stores.csv)."""
_ATOMIC_CLOCKS = 1.0
"""An L2 slice takes an atomic on one address per clock (NVIDIA Kepler GK110 whitepaper), where the
device gives no other figure."""
_ATOMIC_SECTOR_SHARES = {
    "reduce": {"lane": 56.2 / 59.5, "sector": 41.1 / 59.5, "line": 62.5 / 59.5},
    "return": {"lane": 42.7 / 59.5, "sector": 41.5 / 59.5, "line": 36.9 / 59.5},
    "swap": {"lane": 42.7 / 59.5, "sector": 27.7 / 59.5, "line": 24.6 / 59.5},
}
"""Sectors that all SMs operate on at random places of 8 MiB in the L2, over
`global_atomics_per_clock`, which is 59.5 of an H200: where one lane operates on a sector, where
several do, and where they do so on all sectors of a line (`benchmarks/dependent.cu`,
`tests/data/h200-dependent.csv`, the most of 16 to 64 warps on each SM; of reductions, of 16 and
32)."""
_FEW_REGIONS_SHARES = {
    "64": 69.2 / 89.4,
    "128": 70.6 / 89.4,
    "256": 71.4 / 89.4,
    "400": 81.1 / 89.4,
    "512": 81.7 / 89.4,
    "800": 85.2 / 89.4,
    "1024": 88.2 / 89.4,
    "2048": 88.6 / 89.4,
    "8192": 1.0,
}
"""Additions at random words of so many KiB that the L2 takes, over those of 8 MiB: the fullest of
its slices holds more of few regions than the mean one (`benchmarks/random_atomics.cu` on an H100 of
80 slices, driver 580.159.04, 2026-11-27, `tests/data/h100-random-atomics.csv`, 1056 blocks)."""
_FEWEST_REGIONS = 64.0  # of fewer, the passes in the slice that is used most tell
_NEIGHBOURED = 1.5  # sectors of a line, or lanes of a sector: more than one
_REMOTE_LATENCY_CLOCKS = {"2": 195.5, "4": 196.3, "8": 197.0, "16": 197.1}
"""Of a load of another block's shared memory, by the blocks of a cluster: pointer chases by one
thread of each cluster of an H200 at the same time (`benchmarks/cluster_times.cu`, driver
580.159.04, 2026-11-26), the mean over the pairs of blocks. Between two SMs it is 180 to 217, after
their places. An H800 took 181 in clusters of two (Luo et al., "Dissecting the NVIDIA Hopper
Architecture through Microbenchmarking and Multiple Level Analysis", arXiv 2501.12084)."""
_REMOTE_ATOMIC_CLOCKS = 5.0
"""That an atomic there takes more than a load (ibid.: chases by `atom.add` of 0)."""
_LINE_SECTORS = LINE_BYTES / SECTOR_BYTES
_WHOLE_SECTORS = 3.9  # of a line, in the mean of its requests: all four
_ROUNDING = 0.1  # of a sector
_NO_WINDOW = 1e6


def machine_steps(profile: LaunchProfile, active_sms: float, properties: DeviceProperties) -> Steps:
    """The instructions as records of the simulation.

    Args:
        profile: The machine code.
        active_sms: SMs that operate on a sector at the same time.
        properties: The device.
    """
    steps = empty_steps(len(profile.code.instructions))
    _set_constants(steps, profile, properties)
    _set_additions(steps, profile)
    _set_calls(steps, profile, active_sms, properties)
    sites = sites_of(profile.code, profile.barriers)
    constant_passes = properties.constant_passes_per_clock_per_sm or 1.0
    load_lanes = properties.pipe_lanes_per_clock_per_sm.get("ldg")
    for number, instruction in enumerate(profile.code.instructions):
        step, issue = steps[number], issue_of(instruction, properties)
        previous = profile.code.instructions[number - 1] if number else None
        _set_issue(step, issue, instruction, previous)
        step["dispatch"] = dispatch_clocks(instruction, properties)
        if issue.kind in _OPERATING:
            step["site"] = sites.get(number, -1)
        if issue.kind == Kind.PRODUCT:
            step["passes"] = product_wavefronts(instruction) / SCHEDULERS
            step["copies"] = any("gsb" in operand for operand in instruction.operands)
        if issue.kind == Kind.SEND:
            _send(step, issue, instruction, profile)
            continue
        copies = issue.kind in (Kind.COPY, Kind.COPY_OUT)
        if issue.unit not in (Unit.MEMORY, Unit.CONSTANT) and not copies:
            if issue.kind in (Kind.AWAIT, Kind.AWAIT_PRODUCTS):
                step["groups"] = _groups(instruction.operands)
            continue
        access = profile.accesses.get(number)
        if access is None:
            width = issue.width / 4
            access = Access(max(width, 1.0), max(width, 1.0), max(4 * width, 1.0))
        step["passes"] = access.passes
        if issue.kind == Kind.LOAD:  # the L1 writes a register of a warp per clock
            step["passes"] = max(access.passes, issue.width / 4)
        if issue.kind == Kind.CONSTANT:
            step["passes"] = access.passes / constant_passes
            continue
        if load_lanes and instruction.name in ("LDG", "LD", "LDL"):
            step["passes"] = max(step["passes"], WARP_SIZE / load_lanes)
        _set_access(step, issue, instruction, access, profile, active_sms, properties)
    return steps


def _set_access(
    step: Steps,
    issue: Issue,
    instruction: MachineInstruction,
    access: Access,
    profile: LaunchProfile,
    active_sms: float,
    properties: DeviceProperties,
) -> None:
    """Set what an access to memory takes, besides its wavefronts."""
    step["latency"] = max(issue.latency - BEFORE_L1_CLOCKS, 0.0)
    if is_swap(instruction):
        # Lanes with one bank take further rounds of the loop.
        step["passes"] = SWAP_WAVEFRONTS * issue.width / SHARED_BANK_BYTES
    elif instruction.name == "ATOMS" and access.sharing_lanes > 1:
        _share_address(step, instruction, access.sharing_lanes, properties)
    _set_levels(step, access, issue.width)
    _reach_others(step, issue, access, profile)
    if issue.kind in (Kind.COPY, Kind.COPY_OUT):  # by the copy engine, past the data stage
        step["passes"], step["lines"] = 0.0, max(access.sectors / _LINE_SECTORS, 1e-3)
    if issue.kind == Kind.ATOMIC:
        _set_atomic(step, instruction, access, active_sms, properties)
    elif access.common:
        step["serial"] = active_sms * _common_store_clocks(access, properties)
    step["written"] = profile.dram_written_sector_bytes
    step["copies"] = instruction.name == "LDGSTS"


def _set_calls(
    steps: Steps, profile: LaunchProfile, active_sms: float, properties: DeviceProperties
) -> None:
    """Let warps wait for the functions of the driver that they call."""
    clocks, functions = clock_hz(properties) or 0.0, list(RUNTIME_FUNCTIONS.values())
    for number, call in profile.runtime_calls.items():
        steps[number]["called"] = functions.index(call.function)
        steps[number]["call"] = call.call_s * clocks
        steps[number]["serial"] = active_sms * call.serial_s * clocks


def _set_additions(steps: Steps, profile: LaunchProfile) -> None:
    """Mark the loads and the compare-and-swaps of additions in shared memory."""
    for adding, line in enumerate(profile.additions.lines):
        for step, instruction in zip(steps, profile.code.instructions, strict=True):
            if instruction.ptx_line == line:
                step["loads_words"] = instruction.name == "LDS"
                if step["loads_words"] or is_swap(instruction):
                    step["adding"] = adding


_SHARED_LOADS = ("LDS", "LDSM")
_OPERATING = (
    *(Kind.TEST, Kind.CHANGE, Kind.ARRIVE_COPIED, Kind.COPY, Kind.SEND, Kind.SYNCHRONIZE),
)
"""What operates on a barrier."""


def _set_issue(
    step: Steps,
    issue: Issue,
    instruction: MachineInstruction,
    previous: MachineInstruction | None,
) -> None:
    """Set how an instruction is issued."""
    step["kind"], step["unit"], step["busy"] = issue.kind, issue.unit, issue.busy
    step["latency"] = issue.latency
    step["loads_shared"] = instruction.name in _SHARED_LOADS
    step["awaited"] = awaited_of(instruction.name, issue)
    step["throttle"] = throttle_of(issue)
    step["throttled"] = issue.throttled_share
    step["line"] = instruction.address // CODE_LINE_BYTES
    _set_control(step, instruction, previous)
    step["reads"] = register_reads(instruction, previous)
    step["window"] = READ_WINDOW_CLOCKS if issue.kind == Kind.FIXED else _NO_WINDOW
    step["resolving"] = resolving_clocks(instruction)


def _set_levels(step: Steps, access: Access, width: int) -> None:
    """Set the lines of a request, and what serves them.

    Lines lie together where all of their sectors are read, or where 32 lanes of some bytes read as
    many sectors as they fill, and one more where they begin within a sector.
    """
    step["lines"], step["sectors"] = max(access.lines, 1e-3), access.sectors
    is_filled = width - _ROUNDING <= access.sectors <= width + 1 + _ROUNDING
    step["whole"] = is_filled or access.sectors >= _WHOLE_SECTORS * access.lines > 0
    is_store = step["kind"] == int(Kind.STORE)
    is_stored_whole = is_store and access.lines > 0 and width >= access.sectors - _ROUNDING
    lone = figure_at(_LONE_STORE_SECTORS, access.lines) if is_stored_whole else None
    step["least_written"] = lone or L2_ACCESS_SECTORS
    step["sector_bytes"] = SECTOR_BYTES
    if is_store and access.lines > 0 and access.sector_bytes < _MOSTLY_WHOLE_BYTES:
        per_line = max(access.sectors / access.lines, 1.0)
        step["sector_bytes"] = access.sector_bytes
        step["part_written"] = access.sectors * (figure_at(_PART_STORE_SECTORS, per_line) or 1.0)
    if access.repeated:
        step["repeats"], step["repeated"] = 1, access.repeated
        if access.sector_bytes >= _MOSTLY_WHOLE_BYTES:
            step["rewritten"] += (_REWRITTEN_SECTORS - 1) * access.repeated[0]
    step["missed"], step["dram"] = access.missed, access.dram
    step["joined"], step["joined_dram"] = access.joined, access.joined_dram
    step["l2_joined_dram"] = access.l2_joined_dram
    step["awaited_share"] = _awaited_share(access)
    if access.l2_far is not None:
        step["far"] = access.l2_far


def _awaited_share(access: Access) -> float:
    """The `awaited_share` of an access, by how many blocks read a line that DRAM reads once."""
    if not access.l2_joined_dram or not access.dram:
        return 1.0
    readers = 1 + (1 - access.dram) * access.l2_joined_dram / access.dram
    return figure_at(_AWAITED_SHARES, readers) or 1.0


def _set_control(
    step: Steps, instruction: MachineInstruction, previous: MachineInstruction | None
) -> None:
    """Set what the instruction waits for, and what for it: nothing passes a fence of the device."""
    control = instruction.control
    if control is not None:
        step["stall"], step["wait"] = max(control.stall, 1), control.wait_mask
        step["write"] = -1 if control.write_barrier is None else control.write_barrier
        step["read"] = -1 if control.read_barrier is None else control.read_barrier
    if is_device_fence(instruction):
        step["write"] = FENCES
    if previous is not None and is_device_fence(previous):
        step["wait"] |= 1 << FENCES


def _send(
    step: Steps, issue: Issue, instruction: MachineInstruction, profile: LaunchProfile
) -> None:
    """Let a store that completes its bytes at a barrier of another block take that network."""
    operations = profile.barriers.operations.values()
    sent = [
        -done.transactions
        for of_warp in operations
        for done in of_warp
        if done.line == instruction.ptx_line
    ]
    step["remote"] = 1.0
    step["remote_sectors"] = sum(sent) / len(sent) / SECTOR_BYTES if sent else 1.0
    known = remote_sector_clocks(profile)  # what was measured has that of a sector
    is_store = issue.unit == Unit.MEMORY
    known += BEFORE_L1_CLOCKS if is_store else 0.0
    step["remote_latency"] = message_clocks("store" if is_store else "copy", profile) - known


def _reach_others(step: Steps, issue: Issue, access: Access, profile: LaunchProfile) -> None:
    """Let the requests that go to other blocks' shared memory take the network between SMs."""
    if not access.remote:
        return
    known = BEFORE_L1_CLOCKS + remote_sector_clocks(profile)  # what was measured has both
    step["remote"], step["remote_sectors"] = access.remote, access.remote_sectors
    latency = figure_at(_REMOTE_LATENCY_CLOCKS, profile.cluster_blocks) or 0.0
    step["remote_latency"] = latency - known
    if issue.kind == Kind.ATOMIC:
        step["remote_latency"] += _REMOTE_ATOMIC_CLOCKS


_CONSTANT_OPERAND = re.compile(r"c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+)\]")


def reads_fixed_constant(instruction: MachineInstruction) -> bool:
    """Whether an instruction reads constant memory at an address that it holds itself."""
    return any(_CONSTANT_OPERAND.search(operand) for operand in instruction.operands)


def _bank(operands: tuple[str, ...], known: dict[str, int]) -> int:
    """The number of the line of constant memory that an instruction reads; -1 for none."""
    for operand in operands:
        match = _CONSTANT_OPERAND.search(operand)
        if match:
            line = f"{match[1]} {int(match[2], 16) // CONSTANT_LINE_BYTES}"
            return known.setdefault(line, len(known))
    return -1


def _set_constants(steps: Steps, profile: LaunchProfile, properties: DeviceProperties) -> None:
    """Set the lines of constant memory that instructions read, and their latencies."""
    if profile.walks and properties.constant_lines_per_clock:
        for number, access in profile.accesses.items():
            if access.constant_lines is not None:
                steps[number]["walked"] = access.constant_lines
    known: dict[str, int] = {}
    near, far = prefetched_clocks(properties), float(l2_latency_table(properties).mean())
    for step, instruction in zip(steps, profile.code.instructions, strict=True):
        step["bank"] = _bank(instruction.operands, known)
        step["bank_latency"] = near if _reads_parameters(instruction.operands) else far


def _reads_parameters(operands: tuple[str, ...]) -> bool:
    """Whether an instruction reads the bank of constants that a launch writes itself."""
    return any(operand.lstrip("-|!~").startswith("c[0x0]") for operand in operands)


def _set_atomic(
    step: Steps,
    instruction: MachineInstruction,
    access: Access,
    active_sms: float,
    properties: DeviceProperties,
) -> None:
    """Set what an atomic takes of the L2, which executes it."""
    step["serial"] = active_sms * _atomic_clocks(instruction, access, properties)
    sectors = _atomic_sectors(instruction, access, properties)
    step["least_written"] = access.sectors / step["lines"] * sectors


def _common_store_clocks(access: Access, properties: DeviceProperties) -> float:
    """SM clocks from a store to the next one, where all warps store to one address.

    The first store of a warp takes longer than those that follow it closely.
    """
    further = (_FIRST_COMMON_STORE_S - _COMMON_STORE_S) / max(access.times, 1.0)
    return access.common * (_COMMON_STORE_S + further) * (clock_hz(properties) or 0.0)


def _atomic_clocks(
    instruction: MachineInstruction, access: Access, properties: DeviceProperties
) -> float:
    """SM clocks that an atomic takes of the slice of the L2 that all blocks use most.

    A slice takes a pass after the other, of whatever sectors. Additions of floating point to one
    address wait for each other longer, while the slice works on other addresses.
    """
    clocks = clock_hz(properties) or 0.0
    interval_s = properties.global_atomic_same_address_s
    if not interval_s:
        return access.slice_passes * _ATOMIC_CLOCKS
    serial_s = access.slice_passes * interval_s
    if any(part.startswith("F") and part[1:2].isdigit() for part in _parts(instruction)):
        dependent_s = properties.global_atomic_same_address_float_s or interval_s
        serial_s = max(serial_s, access.sector_passes * dependent_s)
    return serial_s * clocks


def _share_address(
    step: Steps, instruction: MachineInstruction, lanes: float, properties: DeviceProperties
) -> None:
    """Let lanes with the same address of shared memory operate one after the other.

    Those that all add one (`POPC`) are counted at once. Where an operation is a loop of
    compare-and-swap, each round is one lane's; that lanes of other warps make it fail is left out.
    """
    parts = _parts(instruction)
    if "POPC" in parts:
        return
    if "ADD" not in parts:  # of which the passes are counted lane by lane
        step["passes"] *= lanes
    step["passes"] *= properties.shared_atomic_same_address_clocks or 1.0
    if any(part.startswith("CAS") for part in parts):
        shared = properties.shared_latency_clocks or 0.0
        round_clocks = shared + (properties.shared_atomic_latency_clocks or 2 * shared)
        step["latency"] += (lanes - 1) * round_clocks


def _atomic_sectors(
    instruction: MachineInstruction, access: Access, properties: DeviceProperties
) -> float:
    """Sectors that the L2 could write in the time of an atomic's sector."""
    written = properties.l2_write_bytes_per_clock or properties.l2_bytes_per_clock
    atomics = properties.global_atomics_per_clock
    if not written or not atomics:
        return L2_ACCESS_SECTORS
    swaps = any(part.startswith("CAS") for part in _parts(instruction))
    kind = "swap" if swaps else "reduce" if instruction.name.startswith("RED") else "return"
    if access.sectors > _NEIGHBOURED * access.lines:
        place = "line"
    else:
        place = "sector" if access.lanes > _NEIGHBOURED * access.sectors else "lane"
    share = _ATOMIC_SECTOR_SHARES[kind][place]
    if access.atomic_regions >= _FEWEST_REGIONS:
        share *= figure_at(_FEW_REGIONS_SHARES, access.atomic_regions) or 1.0
    return written / SECTOR_BYTES / atomics / share


def _parts(instruction: MachineInstruction) -> list[str]:
    return instruction.opcode.split(".")


def _groups(operands: tuple[str, ...]) -> int:
    """The groups of asynchronous copies that a DEPBAR leaves under way; it may name scoreboards."""
    last = operands[-1] if operands else "0x0"
    return int(last, 0) if last.isalnum() and last[0].isdigit() else 0
