"""The clocks of matrix instructions against the peak of the datasheet."""

import pytest

from memlab.device.datasheets import loader
from memlab.device.machine_code.pipes import PIPES
from memlab.device.sm_model.pipes import tensor_clocks
from memlab.device.sm_model.records import STALLS, Stall
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


def test_stalls_and_pipes_are_named_alike_everywhere() -> None:
    assert set(PIPE_NAMES) == set(PIPES)
    assert set(STALL_REASONS) == {SELECTED, *(stall.name.lower() for stall in Stall)}
    assert len(Stall) == STALLS
