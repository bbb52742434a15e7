"""The units that instructions are issued to, and the clocks of matrix instructions."""

import pytest

from memlab.device.datasheets import loader
from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.machine_code.pipes import PIPES, pipe_of
from memlab.device.sm_model.pipes import issue_of, tensor_clocks
from memlab.device.sm_model.records import STALLS, Stall, Unit
from memlab.device.warp_stalls import PIPE_NAMES, SELECTED, STALL_REASONS


@pytest.mark.parametrize(
    ("opcode", "clocks"),
    [
        # 4096 FLOPs a clock and SM of FP16, an FMA is two: 1024 a clock and sub-core, of which each
        # has a quarter of 2 * 64 * 256 * 16.
        ("HGMMA.64x256x16.F32", 128),
        ("HGMMA.64x256x16.F32.BF16", 128),
        ("HGMMA.64x8x16.F32", 4),
        ("HGMMA.64x256x8.F32.TF32", 128),
        ("QGMMA.64x256x32.F32.E4M3.E4M3", 128),
        ("IGMMA.64x256x32.S8.S8", 128),
    ],
)
def test_products_of_warpgroups_run_at_the_peak(opcode: str, clocks: float) -> None:
    assert tensor_clocks(opcode, loader.load_datasheet("h200")) == pytest.approx(clocks, rel=1e-3)


@pytest.mark.parametrize(
    ("pipe", "units", "names"),
    [
        ("alu", {Unit.ALU}, ("LOP3", "ISETP", "SEL", "SHF", "VOTE", "CS2R", "FMNMX", "I2FP")),
        ("xu", {Unit.TRANSCENDENTAL}, PIPES["xu"].split()),
        ("fp64", {Unit.FP64}, PIPES["fp64"].split()),
        ("fma", {Unit.FMA, Unit.FMA_HEAVY}, ("FFMA", "FADD", "FMUL", "IMAD", "VIADD", "IDP")),
    ],
)
def test_arithmetic_is_issued_to_the_pipe_that_counts_it(
    pipe: str, units: set[Unit], names: tuple[str, ...]
) -> None:
    # The pipes are those by which Nsight Compute counted on an H200 (docs/results/h200-truth.csv).
    device = loader.load_datasheet("h200")
    for name in names:
        step = MachineInstruction(0, "", name, (), None, 0, None)
        assert pipe_of(step) == pipe
        assert issue_of(step, device).unit in units, name


def test_stalls_and_pipes_are_named_alike_everywhere() -> None:
    assert set(PIPE_NAMES) == set(PIPES)
    assert set(STALL_REASONS) == {SELECTED, *(stall.name.lower() for stall in Stall)}
    assert len(Stall) == STALLS
