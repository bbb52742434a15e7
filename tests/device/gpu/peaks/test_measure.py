"""The measurement of peaks, with the emulator as the GPU and a constant time per launch."""

import pytest
from emulated_gpu import PEAK_SIZES, STREAM_BYTES, EmulatedSession, Reports, ptx_for_cubin

from memlab.device.datasheets import loader
from memlab.device.gpu.peaks import bench, measure
from memlab.device.gpu.peaks import latencies as peak_latencies
from memlab.device.gpu.peaks import rates as peak_rates
from memlab.errors import DeviceError, MemlabError
from memlab.kernels.peaks import memory_loops as kernels

AMPERE = (8, 0)  # has no wgmma, which the emulator does not know


@pytest.fixture
def small(monkeypatch):
    """Reduce all sizes so that the emulator needs only seconds."""
    monkeypatch.setattr(measure, "GpuSession", EmulatedSession)
    monkeypatch.setattr(bench, "compile_unit", ptx_for_cubin)
    for module, values in PEAK_SIZES.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


@pytest.mark.slow
def test_everything_is_verified_and_measured_once(small):
    link = Reports()
    rates, latencies, footprints = measure._measure_in_worker(
        link, 0, loader.load_datasheet("a100")
    )

    keys = [rate.key for rate in rates]
    assert len(set(keys)) == len(keys)
    assert {"dram_read", "l2_read", "fp32_fma", "bf16_mma"} <= set(keys)
    assert not any("wgmma" in key for key in keys)
    value = {rate.key: rate.value * peak_rates.TARGET_LAUNCH_S for rate in rates}
    assert value["dram_read"] == pytest.approx(STREAM_BYTES)
    assert value["dram_triad"] == pytest.approx(3 * STREAM_BYTES)
    assert value["fp64_fma"] == pytest.approx(2 * 8 * 63 * 1024)  # a block, a trip
    assert value["shared_read"] == pytest.approx(2 * 2048 * 16)  # two blocks
    assert value["tf32_mma"] == pytest.approx(8 * 32 * 2 * 16 * 8 * 8)  # eight warps

    # If no multiprocessor is far, the L2 has one latency.
    assert [latency.label for latency in latencies] == [
        "Register (FMA)",
        "Shared memory",
        "Constant",
        "L1",
        "L2",
        "DRAM",
    ]
    assert [footprint.footprint_bytes for footprint in footprints] == [
        2**10 * size_kib for size_kib in (32, 48, 64, 96, 128, 192, 256)
    ]
    assert [footprint.bandwidth_bytes_per_s is not None for footprint in footprints] == [
        size % 64 == 0 for size in (32, 48, 64, 96, 128, 192, 256)
    ]
    fractions = [fraction for _, fraction in link.heard]
    assert fractions == sorted(fractions)
    assert 0.9 < fractions[-1] < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "broken", "instead", "label"),
    [
        ("stream.cu", "out[index] = in[index]", "out[index] = in[index ^ 1]", "DRAM copy"),
        ("fma.cu", "factor_fp32 = -1.0f", "factor_fp32 = -1.5f", "FP32 FMA"),
        ("latency.cu", "step < steps", "step < steps / 2", "chase_"),
    ],
)
def test_a_kernel_that_does_something_else_is_never_timed(
    small, monkeypatch, file, broken, instead, label
):
    original = kernels.benchmark_source

    def source(name):
        text = original(name)
        assert name != file or broken in text
        return text.replace(broken, instead) if name == file else text

    monkeypatch.setattr(kernels, "benchmark_source", source)
    with pytest.raises(MemlabError, match=label):
        measure._measure_in_worker(Reports(), 0, loader.load_datasheet("a100"))


H200_BYTES, H200_L2_BYTES = 150_109_880_320, 62_914_560


def test_streams_take_their_full_size_where_there_is_room():
    assert peak_rates.stream_bytes(H200_BYTES, H200_L2_BYTES) == 8 * 2**30
    assert peak_latencies.footprint_sizes(H200_BYTES)[-1] == 2**30


@pytest.mark.parametrize("free_bytes", [1_100_000_000, 2**31 - 12345, 2**33, 2**34])
def test_what_peaks_allocate_fits_what_is_free_and_no_cache(free_bytes):
    stream = peak_rates.stream_bytes(free_bytes, H200_L2_BYTES)
    largest = peak_latencies.footprint_sizes(free_bytes)[-1]

    assert 4 * H200_L2_BYTES <= stream < free_bytes / 3
    assert stream % peak_rates.STREAM_GRANULARITY_BYTES == 0
    assert 4 * H200_L2_BYTES < largest < free_bytes / 2


def test_too_little_free_memory_for_peaks_is_said_with_what_they_need():
    with pytest.raises(DeviceError, match=r"need (\d+) bytes.*900000000 are free") as caught:
        peak_rates.stream_bytes(900_000_000, H200_L2_BYTES)

    needed = int(str(caught.value).split()[2])
    assert peak_rates.stream_bytes(needed, H200_L2_BYTES) >= 4 * H200_L2_BYTES
    assert "smaller sizes" not in str(caught.value)


@pytest.mark.parametrize(
    ("multiprocessors", "l2_bytes", "own_kib"),
    [(132, 62_914_560, 192), (46, 4 * 2**20, 64), (108, 40 * 2**20, 128)],
)
def test_l2_loops_stay_within_the_l2(multiprocessors, l2_bytes, own_kib):
    loops = {loop.key: loop for loop in kernels.LOOPS}
    own = kernels.size_for_l2(loops["l2_read"], multiprocessors, l2_bytes)
    shared = kernels.size_for_l2(loops["l2_shared_read"], multiprocessors, l2_bytes)
    assert own.footprint * 16 == own_kib * 2**10
    assert own.footprint * 16 * multiprocessors < l2_bytes
    assert 0.4 * l2_bytes < shared.footprint * 16 <= 0.5 * l2_bytes
    assert kernels.size_for_l2(loops["l1_read"], multiprocessors, l2_bytes) is loops["l1_read"]
