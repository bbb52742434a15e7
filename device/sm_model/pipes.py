"""What the instructions of the machine code are issued to: pipes, their rates and latencies.

Rates are those of the CUDA C++ Programming Guide's table of arithmetic throughput, which
`DeviceProperties.pipe_lanes_per_clock_per_sm` holds. The pipe of arithmetic is that with which
Nsight Compute counts it (`device/machine_code/pipes.py`). An instruction with a fixed latency needs
no latency here: the compiler wrote it into the stall counts. What waits at a scoreboard does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.machine_code.pipes import PIPES, pipe_of
from memlab.device.properties import WARP_SIZE, DeviceProperties
from memlab.device.sm_model.records import SCHEDULERS, Kind, Stall, Unit

_HALF = frozenset(PIPES["fp16"].split())
_LOADS = {"LDG", "LD", "LDL", "TEX", "TLD", "TLD4", "SULD", "LDGSTS"}
_STORES = {"STG", "ST", "STL", "SUST"}
_ATOMICS = {"ATOM", "ATOMG", "RED", "SUATOM", "SURED", "REDG"}
_SHARED = {"LDS", "STS", "LDSM", "STSM", "ATOMS", "SHFL", "MOVM"}
_CONSTANT = {"LDC"}
_COPIES = {"UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG"}
"""What the copy engine executes; `UBLKCP.S.G` copies to shared memory, `.G.S` from there, `.S.S` to
that of another block."""
_COMMITS = {"LDGDEPBAR", "UTMACMDFLUSH"}
"""`cp.async.commit_group` and `cp.async.bulk.commit_group`; DEPBAR waits for the groups of both."""
_SENDS = {"STAS", "REDAS"}
"""`st.async` and `red.async` to shared memory of another block."""
_BARRIER_KINDS = {"PHASECHK": Kind.TEST, "ARRIVE": Kind.CHANGE}
_CLUSTER_BARRIER = {"UCGABAR_ARV": Kind.ARRIVE_CLUSTER, "UCGABAR_WAIT": Kind.AWAIT_CLUSTER}
_SPECIAL_REGISTERS = {"S2R", "S2UR", "VOTEU", "R2UR", "REDUX", "MATCH"}

_FMA_HALVES = 2
"""The FMA pipe has two halves of equal width; one of them also multiplies integers (Nsight Compute,
"Pipelines": FMA heavy and FMA lite)."""
_QUARTER_RATE_LANES = 16.0
"""Lanes per SM and clock of special functions (ibid.), where the device gives no other figure."""
_TENSOR_SHARE = 0.629
"""The share of the peak that `mma.sync` reaches on Hopper (Luo et al., "Benchmarking and
Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", arXiv 2402.13499)."""
_UNKNOWN_TENSOR_CLOCKS = 8.0  # of a matrix instruction, where the device gives no peak
_HOPPER = 9
_SPECIAL_LATENCY_CLOCKS = 24.0
"""Of S2R, shuffles and MUFU, from issue to use (Jia et al., arXiv 1804.06826 and 1903.07486: 20 to
25 clocks on Volta and Turing)."""
_CONVERSION_LATENCY_CLOCKS = 14.0  # ibid.


@dataclass(frozen=True)
class Issue:
    """How an instruction is issued.

    Attributes:
        kind: What the simulation does with it.
        unit: The unit of the sub-core that takes it.
        busy: Clocks until the unit takes another one.
        latency: Clocks until a scoreboard that waits for it is released, of an unloaded SM.
        width: Bytes that a lane loads or stores.
    """

    kind: Kind
    unit: Unit
    busy: float
    latency: float = 0.0
    width: int = 4

    @property
    def throttled_share(self) -> float:
        """The share of the time of a warp that waits for the unit, in which that takes none."""
        if self.unit == Unit.MEMORY:
            return 1.0
        return 1 - 1 / max(self.busy / (_FMA_HALVES if self.unit == Unit.FMA else 1), 1.0)


_GLOBAL = (Kind.LOAD, Kind.STORE, Kind.ATOMIC)
_FENCES = ("MEMBAR", "ERRBAR", "CCTL", "FENCE")


def is_device_fence(step: MachineInstruction) -> bool:
    """Whether it is a memory fence for threads of other blocks."""
    return step.name == "MEMBAR" and "CTA" not in step.opcode


def awaited_of(name: str, issue: Issue) -> Stall:
    """The reason of a warp that waits for the result of an instruction."""
    if issue.kind in _GLOBAL:
        return Stall.LONG_SCOREBOARD
    return Stall.MEMBAR if name in _FENCES else Stall.SHORT_SCOREBOARD


def throttle_of(issue: Issue) -> Stall:
    """The reason of a warp that waits for the unit of an instruction."""
    if issue.kind in _GLOBAL:
        return Stall.LG_THROTTLE
    if issue.unit in (Unit.MEMORY, Unit.TRANSCENDENTAL):
        return Stall.MIO_THROTTLE
    return Stall.MATH_PIPE_THROTTLE


def issue_of(step: MachineInstruction, properties: DeviceProperties) -> Issue:
    """How an instruction is issued on a device."""
    name, opcode, pipe = step.name, step.opcode, pipe_of(step)
    lanes, latency = properties.pipe_lanes_per_clock_per_sm, properties.pipe_latency_clocks
    alu = _clocks(lanes, "alu", 64.0)
    if name in _LOADS or name in _STORES or name in _ATOMICS:
        return _memory(step, properties)
    if name in _SHARED:
        return _shared(step, properties)
    if name in _SENDS:
        return Issue(Kind.SEND, Unit.MEMORY, ADDRESS_CLOCKS)
    if name == "ARRIVES":  # when the LDGSTS before it are complete
        return Issue(Kind.ARRIVE_COPIED, Unit.MISCELLANEOUS, 1.0)
    if name in _CONSTANT:
        first = properties.constant_latency_clocks or properties.shared_latency_clocks or 0.0
        return Issue(Kind.CONSTANT, Unit.CONSTANT, 1.0, first)
    if name == "BAR" and ("SYNC" in opcode or "RED" in opcode):
        return Issue(Kind.SYNCHRONIZE, Unit.MISCELLANEOUS, 1.0, _SPECIAL_LATENCY_CLOCKS)
    if name == "BAR" and "ARV" in opcode:
        return Issue(Kind.CHANGE, Unit.MISCELLANEOUS, 1.0)
    if name in _COMMITS:
        return Issue(Kind.COMMIT, Unit.MISCELLANEOUS, 1.0)
    if name == "DEPBAR":
        return Issue(Kind.AWAIT, Unit.MISCELLANEOUS, 1.0)
    if is_device_fence(step):
        return Issue(Kind.VARIABLE, Unit.MISCELLANEOUS, _FENCE_BUSY_CLOCKS, _FENCE_CLOCKS)
    if name in _FENCES:
        return Issue(Kind.VARIABLE, Unit.MISCELLANEOUS, 1.0, properties.l2_latency_clocks or 0.0)
    if name == "WARPGROUP" and "DEPBAR" in opcode:
        return Issue(Kind.AWAIT_PRODUCTS, Unit.MISCELLANEOUS, 1.0)
    if name in _COPIES and ".S.S" in opcode:
        return Issue(Kind.SEND, Unit.UNIFORM, 2.0)
    if name in _COPIES:
        out = ".G.S" in opcode or name not in ("UBLKCP", "UTMALDG")
        return Issue(Kind.COPY_OUT if out else Kind.COPY, Unit.UNIFORM, 2.0)
    if name in _CLUSTER_BARRIER:
        return Issue(_CLUSTER_BARRIER[name], Unit.UNIFORM, 2.0)
    if name == "SYNCS":
        kind = next((kind for word, kind in _BARRIER_KINDS.items() if word in opcode), Kind.FIXED)
        return Issue(kind, Unit.MISCELLANEOUS, 1.0, properties.shared_latency_clocks or 0.0)
    if name.endswith("GMMA"):
        return _warpgroup_product(step, properties)
    if pipe == "tensor" and name not in _HALF:
        return Issue(Kind.FIXED, Unit.TENSOR, tensor_clocks(opcode, properties))
    if pipe == "fp64":
        return Issue(
            Kind.VARIABLE, Unit.FP64, _clocks(lanes, "fp64", 64.0), latency.get("fp64", 16.0)
        )
    if pipe == "xu":
        busy = _clocks(lanes, "mufu", _QUARTER_RATE_LANES)
        return Issue(
            Kind.VARIABLE, Unit.TRANSCENDENTAL, busy, latency.get("mufu", _SPECIAL_LATENCY_CLOCKS)
        )
    if name in _SPECIAL_REGISTERS:
        return Issue(Kind.VARIABLE, Unit.MISCELLANEOUS, 2.0, _SPECIAL_LATENCY_CLOCKS)
    if pipe == "cbu":
        return Issue(Kind.FIXED, Unit.BRANCH, 2.0)
    if name in _HALF:
        # A paired instruction makes two results a lane.
        return Issue(Kind.FIXED, Unit.FMA, _FMA_HALVES * _clocks(lanes, "fp16", 128.0))
    if pipe == "fma" and name.startswith("F"):
        return Issue(Kind.FIXED, Unit.FMA, _FMA_HALVES * _clocks(lanes, "fma", 128.0))
    if pipe == "fma":  # the half that multiplies integers; `VIADD` too (`fmaheavy` of an H200)
        busy = _clocks(lanes, "imad", 64.0)
        return Issue(Kind.FIXED, Unit.FMA_HEAVY, busy * (1 + _is_wide(opcode)))
    if name.startswith("U") and name != "UNDEF":
        return Issue(Kind.FIXED, Unit.UNIFORM, 2.0, _SPECIAL_LATENCY_CLOCKS)
    if name == "NOP":
        return Issue(Kind.FIXED, Unit.MISCELLANEOUS, 1.0)
    return Issue(Kind.FIXED, Unit.ALU, alu, _CONVERSION_LATENCY_CLOCKS)


_FENCE_CLOCKS, _FENCE_BUSY_CLOCKS = 248.0, 26.0
"""How long a fence of the device holds up its warp where no store is under way, and the next fence
of the sub-core. On an H200 (driver 580.159.04, 2026-11-26), `barrier.cluster` took 263 clocks more
with `.release` arrivals, which `MEMBAR.ALL.GPU` makes, than with `.relaxed` ones, 15 of them for
the other instructions that this adds; with 8, 16 and 32 warps in a block 280, 341 and 476 more."""
ARRIVAL_CLOCKS = 32.0
"""From an arrival at an `mbarrier` until a warp that waits there goes on. Two warps that wait for
one another took 185 clocks for both ways on an H200 at 1980 MHz (2026-11-24), with the
instructions between."""
_PRODUCT_LATENCY_CLOCKS = {"shared": 44.0, "registers": 36.0}
"""From the end of a warpgroup's product on the tensor cores until a warp that waits for it goes on,
with A in shared memory and in registers. On an H200 (1980 MHz, 2026-11-24) one product at a time
took N/2 + 56 and N/2 + 48 clocks for m64nNk16 in BF16, of which 12 are instructions around it."""
_SHARED_WAVEFRONT_BYTES = 128


def _warpgroup_product(step: MachineInstruction, properties: DeviceProperties) -> Issue:
    """A warp's part of a product of its warpgroup.

    The tensor cores read the factors in shared memory themselves, 128 bytes a clock, each for all
    four warps. On an H200 m64n8k16 in BF16 took 18 clocks, of 2304 bytes, though the tensor cores
    need 4 for it; m64n64k16 took 32 for both reasons.
    """
    clocks, wavefronts = tensor_clocks(step.opcode, properties), product_wavefronts(step)
    place = "shared" if _has_shared_factor(step) else "registers"
    latency = clocks + _PRODUCT_LATENCY_CLOCKS[place]
    return Issue(Kind.PRODUCT, Unit.TENSOR, max(clocks, wavefronts), latency)


def product_wavefronts(step: MachineInstruction) -> float:
    """Passes through shared memory of a warpgroup's product: the bytes of its factors there."""
    shape = _WARPGROUP_SHAPE.search(step.opcode)
    if shape is None:
        return 0.0
    rows, columns, _ = map(int, shape.groups())
    # K takes 32 bytes in every type.
    lines = columns + (rows if _has_shared_factor(step) else 0)
    return lines * _PRODUCT_DEPTH_BYTES / _SHARED_WAVEFRONT_BYTES


_PRODUCT_DEPTH_BYTES = 32


def _has_shared_factor(step: MachineInstruction) -> bool:
    """Whether A, too, lies in shared memory: one descriptor stands for both factors."""
    return len(step.operands) > 1 and step.operands[1].startswith("gdesc")


_RESOLVING_CLOCKS = {"BRA": 3.0, "EXIT": 4.0, "BSYNC": 8.0, "WARPSYNC": 8.0}
"""Clocks after its stall count until a branch has its target.

Nsight Compute's `smsp__average_warps_issue_stalled_branch_resolving` of the launches of
`docs/results/h200-truth.csv`, over their branches. Of 43 launches that have loops only, 2.7 in the
median, and 3.1 where they branch most (`sum-64-blocks`, `sum-vectors`, `histogram-shared`); for
each EXIT of 32 launches without a loop, 3.8 to 4.2; for each BSYNC of 28 launches, from 8 where
lanes are together to 15 where they part."""


def resolving_clocks(step: MachineInstruction) -> float:
    """Clocks after its stall count until a branch has its target; 0 for other instructions."""
    return _RESOLVING_CLOCKS.get(step.name, 0.0)


def _clocks(lanes: Mapping[str, float], pipe: str, otherwise: float) -> float:
    """Clocks that a pipe of a sub-core needs for a warp."""
    return max(WARP_SIZE * SCHEDULERS / (lanes.get(pipe) or otherwise), 1.0)


_WIDE_DISPATCH_CLOCKS, _ADDEND_CLOCKS = 2.0, 1.0
"""Clocks in which a sub-core issues nothing behind a product of 64 bits, and one more where it adds
two registers to it, on Hopper: `tests/data/h200-issue.csv`. Of other architectures nothing is
known."""


def dispatch_clocks(step: MachineInstruction, properties: DeviceProperties) -> float:
    """Clocks behind an instruction in which its sub-core issues nothing, of any warp."""
    is_wide = step.name == "IMAD" and _is_wide(step.opcode)
    if not is_wide or properties.compute_capability[0] != _HOPPER:
        return 0.0
    addend = step.operands[-1].lstrip("-") if step.operands else ""
    added = addend.startswith("R") and not addend.startswith("RZ")
    return _WIDE_DISPATCH_CLOCKS + _ADDEND_CLOCKS * added


def _is_wide(opcode: str) -> bool:
    """Whether an integer multiplication makes 64 bits: it takes the pipe twice as long.

    In the machine code of sm_90, ptxas has two of them in a row wait 4 clocks for each other, and
    two of 32 bits 2 clocks.
    """
    return ".WIDE" in opcode or ".HI" in opcode


def access_bytes(instruction: MachineInstruction) -> int:
    """Bytes per lane of a memory instruction."""
    for part in instruction.opcode.split("."):
        if part in {"64", "128", "256"}:
            return int(part) // 8
        if part in {"U8", "S8"}:
            return 1
        if part in {"U16", "S16"}:
            return 2
    return 4


def _memory(step: MachineInstruction, properties: DeviceProperties) -> Issue:
    """Global and local accesses: the latency is that of an L1 hit."""
    kind = Kind.STORE if step.name in _STORES else Kind.ATOMIC
    if step.name in _LOADS:
        kind = Kind.LOAD
    l1 = properties.l1_latency_clocks or 0.0
    return Issue(kind, Unit.MEMORY, ADDRESS_CLOCKS, l1, access_bytes(step))


def _shared(step: MachineInstruction, properties: DeviceProperties) -> Issue:
    shared = properties.shared_latency_clocks or 0.0
    latency = _SPECIAL_LATENCY_CLOCKS if step.name == "SHFL" else shared
    if step.name == "ATOMS":
        latency = properties.shared_atomic_latency_clocks or 2 * shared
    return Issue(Kind.LOCAL, Unit.MEMORY, ADDRESS_CLOCKS, latency, access_bytes(step))


ADDRESS_CLOCKS = 4.0
"""Clocks that a sub-core's address unit takes for a memory instruction (Huerta et al., "Analyzing
Modern NVIDIA GPU Cores", MICRO 2025)."""
QUEUE_DEPTH = 5
"""Memory instructions that a sub-core buffers (ibid.)."""

_SHAPE = re.compile(r"\.(\d+)(?:\.|$)")
_SHAPES = {
    "1688": 16 * 8 * 8,
    "16816": 16 * 8 * 16,
    "16832": 16 * 8 * 32,
    "1684": 16 * 8 * 4,
    "884": 8 * 8 * 4,
    "8816": 8 * 8 * 16,
}
"""Multiply-adds of a warp's matrix instruction, by the digits of its shape."""


_WARPGROUP_SHAPE = re.compile(r"GMMA\.(\d+)x(\d+)x(\d+)")
_FACTORS = {
    "TF32": "tf32",
    "BF16": "bf16",
    **dict.fromkeys(("QMMA", "QGMMA", "IGMMA"), "fp8"),
}
"""The kind of the factors, by a word in the opcode; integers of 8 bits have the rate of floats."""


def factor_type(opcode: str) -> str:
    """The type of the factors of a matrix instruction, as in the peaks of a device."""
    return next((kind for word, kind in _FACTORS.items() if word in opcode), "fp16")


def tensor_clocks(opcode: str, properties: DeviceProperties) -> float:
    """Clocks that the tensor core of a sub-core needs for a matrix instruction."""
    shape, group = _SHAPE.search(opcode), _WARPGROUP_SHAPE.search(opcode)
    products = _SHAPES.get(shape[1], 16 * 8 * 16) if shape else 16 * 8 * 16
    kind = factor_type(opcode)
    measured = properties.mma_flop_per_clock_per_sm.get(kind)
    if group:  # a quarter of the product, at the peak, which wgmma reaches (ibid.)
        products = math.prod(map(int, group.groups())) // SCHEDULERS
        measured = None
    if measured is None:
        peak, clock = properties.tensor_flop_per_s.get(kind), properties.tensor_clock_hz
        if not peak or not properties.multiprocessor_count:
            return _UNKNOWN_TENSOR_CLOCKS
        clock = clock or properties.clock_rate_hz or 1.0
        measured = peak / clock / properties.multiprocessor_count
        if properties.compute_capability[0] == _HOPPER and not group:
            measured *= _TENSOR_SHARE
    return 2 * products / (measured / SCHEDULERS)
