"""Barriers, copies and products of warpgroups in the simulation of an SM."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import memlab
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation.device import emulate
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.emulator.machine.barrier_log import BarrierOperations
from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.properties import clock_hz
from memlab.device.sm_model.launch_time import estimate
from memlab.device.sm_model.pipes import issue_of, product_wavefronts
from memlab.device.sm_model.profile import LaunchProfile
from memlab.device.sm_model.records import Kind, Stall, Unit
from memlab.device.sm_model.simulation import BarrierWork, Rates, Workload, empty_steps, run
from memlab.kernels.catalog import find_kernel
from memlab.kernels.user.kernel import UserKernel, apply_launch_options
from memlab.launching import prepare_launch
from tests.support.paths import DATA

RING = """
extern "C" __global__ void ring(float* out) {
  __shared__ unsigned long long full, empty;
  unsigned f = (unsigned)__cvta_generic_to_shared(&full);
  unsigned e = (unsigned)__cvta_generic_to_shared(&empty);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(f) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(e) : "memory");
  }
  __syncthreads();
  bool fills = threadIdx.x / 32 == 0;
  if (fills && threadIdx.x) return;
  for (int round = 0; round < 12; round++) {
    unsigned waits = fills ? e : f, done, parity = (round + fills) % 2;
    do {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2;"
                   " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(waits), "r"(parity) : "memory");
    } while (!done);
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(fills ? f : e) : "memory");
  }
  out[threadIdx.x] = 1;
}
"""


def test_a_test_waits_for_the_arrival_of_another_warp() -> None:
    steps = empty_steps(103)
    steps["unit"] = Unit.MISCELLANEOUS
    steps[100]["kind"], steps[100]["site"] = Kind.CHANGE, 0
    steps[101]["kind"], steps[101]["site"] = Kind.TEST, 1
    paths = np.array([(0, 101)]), np.array([(101, 103)])
    barriers = BarrierWork((1,), ((((0, 1, 0, 0, 0),), ()), ((), ((0, 0, 0, 1, 0),))))
    work = Workload(steps, paths, (0, 1), (0, 1), 1.0, 1, 1, barriers)

    done = run(work, Rates(arrival_clocks=30.0))

    # It arrives at clock 100; the other warp tests at 130, and issues another instruction.
    assert done.clocks == 132
    assert steps[101]["stalls"][Stall.LONG_SCOREBOARD] == 130


def test_a_copy_completes_its_bytes_when_they_have_come() -> None:
    steps = empty_steps(4)
    steps["unit"] = Unit.MISCELLANEOUS
    for at, kind in enumerate((Kind.CHANGE, Kind.COPY, Kind.TEST)):
        steps[at]["kind"], steps[at]["site"] = kind, at
    steps[1]["lines"], steps[1]["sectors"], steps[1]["missed"] = 32, 128, 1
    operations = (((0, 1, 4096, 0, 0),), ((0, 0, -4096, 0, 0),), ((0, 0, 0, 1, 0),))
    work = Workload(
        steps, (np.array([(0, 4)]),), (0,), (0,), 1.0, 1, 1, BarrierWork((1,), (operations,))
    )
    rates = Rates(port_sector_clocks=0.25, l2_latencies=np.array([300.0]))

    # The copy begins at clock 1; 4096 bytes pass the port at 128 bytes a clock.
    assert run(work, rates).clocks == 1 + 32 + 300 + 2


@pytest.mark.parametrize(
    ("l2_clocks", "backlog", "pending", "clocks"),
    [
        (1.0, 1e9, 0, 2 * 64),  # the port takes a sector a clock
        (3.0, 1e9, 0, 2 * 64),  # what the L2 takes later is under way
        (3.0, 20.0, 0, 2 * 64 * 3 - 20),  # but not more than the backlog
        (1.0, 1e9, 1, 64),  # of two groups, one may be under way
    ],
)
def test_a_warp_waits_until_its_copies_out_have_left_shared_memory(
    l2_clocks: float, backlog: float, pending: int, clocks: float
) -> None:
    device = loader.load_datasheet("h200")
    issue = issue_of(MachineInstruction(0, "", "UTMACMDFLUSH", (), None, 0, None), device)
    steps = empty_steps(6)
    steps["unit"] = Unit.UNIFORM
    for first in (0, 2):
        steps[first]["kind"], steps[first]["sectors"] = Kind.COPY_OUT, 64
        steps[first + 1]["kind"] = issue.kind
    steps[4]["kind"], steps[4]["groups"] = Kind.AWAIT, pending
    work = Workload(steps, (np.array([(0, 6)]),), (0,), (0,), 1.0, 1, 1)

    rates = Rates(store_port_sector_clocks=1.0, write_sector_clocks=l2_clocks, backlog=backlog)
    run(work, rates)

    # Each step before has its clock; then the wait goes on when the copies have left.
    assert 4 + steps[4]["stalls"][Stall.LONG_SCOREBOARD] == clocks


@pytest.mark.parametrize(("far", "clocks"), [(0, 30), (1, 270)])
def test_an_arrival_at_a_barrier_of_another_block_takes_longer(far: int, clocks: int) -> None:
    steps = empty_steps(3)
    steps["unit"] = Unit.MISCELLANEOUS
    steps[0]["kind"], steps[0]["site"] = Kind.CHANGE, 0
    steps[1]["kind"], steps[1]["site"] = Kind.TEST, 1
    barriers = BarrierWork((1,), ((((0, 1, 0, 0, far),), ((0, 0, 0, 1, 0),)),))
    work = Workload(steps, (np.array([(0, 3)]),), (0,), (0,), 1.0, 1, 1, barriers)

    done = run(work, Rates(arrival_clocks=30.0, far_arrival_clocks=270.0))

    assert done.clocks == clocks + 2


@pytest.mark.parametrize("unit", [Unit.MEMORY, Unit.UNIFORM])
def test_what_is_sent_to_another_block_completes_its_bytes_there(unit: Unit) -> None:
    steps = empty_steps(4)
    steps["unit"] = Unit.MISCELLANEOUS
    for at, kind in enumerate((Kind.CHANGE, Kind.SEND, Kind.TEST)):
        steps[at]["kind"], steps[at]["site"] = kind, at
    steps[1]["unit"], steps[1]["busy"] = unit, 4 * (unit == Unit.MEMORY)
    steps[1]["remote"], steps[1]["remote_sectors"], steps[1]["remote_latency"] = 1, 16, 200
    operations = (((0, 1, 512, 0, 0),), ((0, 0, -512, 0, 1),), ((0, 0, 0, 1, 0),))
    work = Workload(
        steps, (np.array([(0, 4)]),), (0,), (0,), 1.0, 1, 1, BarrierWork((1,), (operations,))
    )

    done = run(work, Rates(remote_sector_clocks=2.0))

    # From clock 1, a store 5 clocks later, 16 sectors take the network; the last step follows.
    begin = 1 + 5 * (unit == Unit.MEMORY)
    assert not done.stuck
    assert done.clocks == begin + 16 * 2 + 200 + 2


def test_an_arrival_of_copies_waits_for_those_of_its_warp() -> None:
    steps = empty_steps(4)
    steps["unit"] = Unit.MISCELLANEOUS
    steps[0]["kind"], steps[0]["unit"], steps[0]["copies"] = Kind.LOAD, Unit.MEMORY, 1
    steps[0]["missed"], steps[0]["sectors"] = 1, 4
    steps[1]["kind"], steps[1]["site"] = Kind.ARRIVE_COPIED, 0
    steps[2]["kind"], steps[2]["site"] = Kind.TEST, 1
    barriers = BarrierWork((1,), ((((0, 1, 0, 0, 0),), ((0, 0, 0, 1, 0),)),))
    work = Workload(steps, (np.array([(0, 4)]),), (0,), (0,), 1.0, 1, 1, barriers)

    done = run(work, Rates(arrival_clocks=30.0, l2_latencies=np.array([300.0])))

    # The copy begins at clock 2; it has come at 302, and the arrival 30 clocks later.
    assert done.clocks == 302 + 30 + 2


@pytest.mark.parametrize("kind", [Kind.COPY, Kind.COPY_OUT])
def test_copies_of_the_copy_engine_hold_up_no_access_of_a_warp(kind: Kind) -> None:
    steps = empty_steps(102)
    steps[0]["kind"], steps[0]["unit"] = kind, Unit.UNIFORM
    steps[0]["lines"], steps[0]["sectors"], steps[0]["missed"] = 1000, 4000, 1
    steps[1:101]["kind"], steps[1:101]["unit"] = Kind.LOCAL, Unit.MEMORY
    steps[1:101]["busy"], steps[1:101]["passes"], steps[1:101]["latency"] = 4, 1, 23
    steps[1:101]["write"], steps[2:]["wait"] = 0, 1
    work = Workload(steps, (np.array([(0, 102)]),), (0,), (0,), 1.0, 1, 1)
    rates = Rates(read_sector_clocks=10, write_sector_clocks=10, backlog=100)

    run(work, rates)

    # Each of the chain of 100 accesses takes its issue, the address unit and its latency.
    assert steps["stalls"].sum() == pytest.approx(100 * (1 + 4 + 23), abs=100)


def test_a_phase_that_nothing_completes_is_noticed() -> None:
    steps = empty_steps(2)
    steps[0]["kind"], steps[0]["site"] = Kind.TEST, 0
    barriers = BarrierWork((1,), ((((0, 0, 0, 1, 0),),),))
    work = Workload(steps, (np.array([(0, 2)]),), (0,), (0,), 1.0, 1, 1, barriers)

    assert run(work, Rates()).stuck


@pytest.mark.parametrize(("pending", "clocks"), [(0, 64 + 44 + 1), (1, 32 + 44 + 1)])
def test_a_warp_waits_for_groups_of_products(pending: int, clocks: float) -> None:
    steps = empty_steps(3)
    steps["unit"], steps["stall"] = Unit.TENSOR, 1
    steps[:2]["kind"], steps[:2]["busy"], steps[:2]["latency"] = Kind.PRODUCT, 32, 32 + 44
    steps["copies"] = 1
    steps[2]["kind"], steps[2]["unit"] = Kind.AWAIT_PRODUCTS, Unit.MISCELLANEOUS
    steps[2]["groups"] = pending
    work = Workload(steps, (np.array([(0, 3)]),), (0,), (0,), 1.0, 1, 1)

    assert run(work, Rates()).clocks == clocks


@pytest.mark.parametrize(
    ("opcode", "factor", "wavefronts"),
    [  # as an H200 counted them
        ("HGMMA.64x64x16.F32.BF16", "gdesc[UR4]", 32),
        ("HGMMA.64x64x16.F32.BF16", "R4", 16),
    ],
)
def test_products_read_their_factors_from_shared_memory(
    opcode: str, factor: str, wavefronts: float
) -> None:
    step = MachineInstruction(0, "", opcode, ("R24", factor, "R24"), None, 0, None)
    assert product_wavefronts(step) == wavefronts


def test_the_operations_of_a_block_are_recorded(tmp_path: Path) -> None:
    file = tmp_path / "ring.cu"
    file.write_text(RING)
    options = {"grid": "1", "block": "64", "args": ["inout:f32[64]=zeros"]}
    device = loader.load_datasheet("h200")
    launch = prepare_launch(
        apply_launch_options(UserKernel(str(file), "ring"), options), {}, device
    )
    compiled = compile_launch(launch, device.compute_capability)

    profile = emulate(launch, compiled, device, 0).profile

    assert profile is not None
    recorded = profile.barriers
    assert sorted(recorded.arrivals) == [1, 32]
    empty, full = recorded.arrivals.index(32), recorded.arrivals.index(1)
    for warp, waits, arrives, first, arrivals in ((0, empty, full, 0, 1), (1, full, empty, 1, 32)):
        of_warp = recorded.operations[warp]
        tests = [done for done in of_warp if done.phases is not None]
        assert list(dict.fromkeys(done.phases for done in tests)) == list(range(first, first + 12))
        assert {done.barrier for done in tests} == {waits}
        changes = [done for done in of_warp if done.phases is None]
        assert [(done.barrier, done.arrivals) for done in changes] == [(arrives, arrivals)] * 12
        assert [done.phases is None for done in of_warp[-2:]] == [False, True]  # in order


COPIED = """
extern "C" __global__ void copied(const float* in, float* out) {
  __shared__ __align__(16) float s[128];
  __shared__ unsigned long long word;
  unsigned bar = (unsigned)__cvta_generic_to_shared(&word), t = threadIdx.x, done;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(bar) : "memory");
  __syncwarp();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               ::"r"((unsigned)__cvta_generic_to_shared(s + 4 * t)), "l"(in + 4 * t) : "memory");
#ifdef ARRIVE
  asm volatile("cp.async.mbarrier.arrive" ARRIVE ".shared.b64 [%0];" ::"r"(bar) : "memory");
#endif
#ifdef OWN
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
#endif
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar) : "memory");
  } while (!done);
  out[t] = s[t];
}
"""


def seconds(defines: list[str]) -> float:
    """The modelled time of `COPIED`."""
    time = memlab.run(
        memlab.source(COPIED, "copied"),
        grid=1,
        block=32,
        args=[np.arange(128, dtype=np.float32), memlab.out(32, "f32")],
        defines=defines,
        device="h200",
    ).measurement.time
    assert time.left_out == ""
    return time.median_s


def test_a_phase_waits_for_the_arrival_of_copies() -> None:
    h200 = loader.load_datasheet("h200")
    latency_s = (h200.dram_latency_clocks or 0.0) / (clock_hz(h200) or 1.0)
    without = seconds(["OWN"])  # where nothing waits for the copies

    for waits in (['ARRIVE=".noinc"'], ['ARRIVE=""', "OWN"]):
        assert seconds(waits) - without == pytest.approx(latency_s, rel=0.4)  # random ones


def test_stores_to_another_block_complete_the_bytes_that_it_waits_for() -> None:
    planted = f"{DATA / 'planted' / 'cluster_store_no_wait.cu'}:swapped"
    arguments = [np.arange(256, dtype=np.int32), memlab.out(256, "i32")]
    time = memlab.run(
        planted, grid=4, block=64, args=arguments, defines=["FIXED"], device="h200"
    ).measurement.time
    assert time.left_out == ""


@pytest.mark.slow
def test_arrivals_at_barriers_of_other_blocks_are_recorded_as_such() -> None:
    """A consumer of `wgmma-cluster` arrives at both blocks; what they expect is their own."""
    recorded = profile_of("wgmma-cluster", 512).barriers
    changes = [
        done
        for of in recorded.operations.values()
        for done in of
        if done.phases is None and done.transactions >= 0
    ]
    assert {done.transactions > 0 for done in changes if done.is_far} == {False}
    assert {done.transactions > 0 for done in changes if not done.is_far} == {True}


def test_warps_meet_at_a_named_barrier_without_the_others_of_their_block() -> None:
    steps = empty_steps(303)
    steps["stall"] = 4
    steps[100]["kind"], steps[100]["site"], steps[100]["stall"] = Kind.SYNCHRONIZE, 0, 1
    slow, fast = np.array([(0, 102)]), np.array([(100, 102)])
    apart = np.array([(102, 303)])  # it never meets them
    meeting = ((0, 1, 0, 1, 0),), ((0, 1, 0, 1, 0),), ()
    barriers = BarrierWork((2,), tuple((operations,) for operations in meeting))
    work = Workload(steps, (slow, fast, apart), (0, 1, 2), (0, 1, 2), 1.0, 1, 1, barriers)

    done = run(work, Rates(barrier_clocks=2, barrier_latency=13))

    assert not done.stuck
    assert done.clocks == 200 * 4 + 1  # of the third warp, which holds up nobody
    # The slow one arrives at 400, the barrier opens 15 clocks later; the fast one waits since 1.
    assert steps[100]["stalls"][Stall.BARRIER] == (415 - 1) + (415 - 401)


def test_an_arrival_at_a_named_barrier_does_not_wait() -> None:
    steps = empty_steps(103)
    steps["unit"] = Unit.MISCELLANEOUS
    steps[100]["kind"], steps[100]["site"] = Kind.CHANGE, 0
    steps[101]["kind"], steps[101]["site"] = Kind.SYNCHRONIZE, 1
    paths = np.array([(0, 101)]), np.array([(101, 103)])
    barriers = BarrierWork((2,), ((((0, 1, 0, 0, 0),), ()), ((), ((0, 1, 0, 1, 0),))))
    work = Workload(steps, paths, (0, 1), (0, 1), 1.0, 1, 1, barriers)

    done = run(work, Rates(arrival_clocks=30.0))

    assert done.clocks == 100 + 30 + 1  # it opens at 130, when another instruction issues


@cache
def profile_of(kernel: str, width: int) -> LaunchProfile:
    """What a launch of the catalog executes on an H200."""
    device = loader.load_datasheet("h200")
    launch = find_kernel(kernel).prepare({"width": width}, launch_limits(device))
    profile = emulate(launch, compile_launch(launch, device.compute_capability), device, 0).profile
    assert profile is not None
    return profile


def test_copies_complete_what_their_barriers_expect() -> None:
    recorded = profile_of("wgmma-cluster", 512).barriers
    done = [operation for of in recorded.operations.values() for operation in of]
    for barrier in range(len(recorded.arrivals)):
        changes = [operation for operation in done if operation.barrier == barrier]
        assert sum(operation.transactions for operation in changes) == 0
        assert sum(operation.arrivals for operation in changes) % recorded.arrivals[barrier] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "width", "microseconds"),  # of an H200 (driver 580.159.04)
    [
        ("wgmma-pipelined", 2048, 29.1),
        ("wgmma-specialized", 2048, 29.2),
        ("wgmma-persistent", 2048, 27.8),
        ("wgmma-cluster", 2048, 28.0),
        ("wgmma-pingpong", 2048, 26.1),
        ("wgmma-overlapped", 4096, 173),
    ],
)
def test_warps_that_wait_at_barriers_take_the_measured_time(
    kernel: str, width: int, microseconds: float
) -> None:
    device = EmulatedDevice("h200", loader.load_datasheet("h200"))
    launch = find_kernel(kernel).prepare({"width": width}, launch_limits(device.properties))
    modelled = device.run(launch, seed=0).time.median_s
    assert modelled == pytest.approx(microseconds * 1e-6, rel=0.1)


def test_a_time_says_that_it_leaves_out_waits_whose_order_is_unknown() -> None:
    profile, h200 = profile_of("wgmma-cluster", 512), loader.load_datasheet("h200")
    operations = {
        warp: tuple(done if done.phases is None else replace(done, phases=99) for done in of_warp)
        for warp, of_warp in profile.barriers.operations.items()
    }  # nothing completes so many phases
    unknown = replace(profile.barriers, operations=operations)

    assert estimate(profile, 4, 1, h200).left_out == ""
    for barriers in (unknown, BarrierOperations(are_too_many=True)):
        found = estimate(replace(profile, barriers=barriers), 4, 1, h200)
        assert found.clocks > 0
        assert "waits at mbarriers" in found.left_out
