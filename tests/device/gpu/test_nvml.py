"""The state and the clocks of GPUs, read from a fake NVML."""

import sys
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from memlab.device.gpu import nvml
from memlab.errors import DeviceError


class NVMLError(Exception):
    """The exception of pynvml."""


def library_that(**refused: bool) -> SimpleNamespace:
    """A fake pynvml with one GPU that does not support the given functions."""
    library = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        open=0,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlDeviceGetUUID=lambda handle: "GPU-9c7f",
        nvmlDeviceGetCudaComputeCapability=lambda handle: (9, 0),
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1755, 2: 3201}[kind],
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetApplicationsClock=lambda handle, kind: 1980,
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0x04 | 0x40 | 0x01,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(free=7 * 2**30, total=9 * 2**30),
        nvmlDeviceGetComputeMode=lambda handle: 3,
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
    )
    library.nvmlInit = lambda: setattr(library, "open", library.open + 1)
    library.nvmlShutdown = lambda: setattr(library, "open", library.open - 1)

    def refuse(*_: object) -> None:
        raise NVMLError("Not Supported")

    for name in refused:
        setattr(library, name, refuse)
    return library


def test_a_gpus_state_is_in_base_units_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    library = library_that()
    monkeypatch.setitem(sys.modules, "pynvml", library)

    (gpu,) = nvml.gpus()

    assert gpu.sm_clock_hz == 1_755_000_000
    assert gpu.memory_clock_hz == 3_201_000_000
    assert gpu.power_limit_w == 700.0
    assert gpu.slowdowns == ("power limit", "hardware thermal limit")  # idle, bit 0, is none
    assert gpu.free_memory_bytes == 7 * 2**30
    assert gpu.compute_mode == "exclusive process"
    assert library.open == 0


def test_what_a_gpu_refuses_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    library = library_that(
        nvmlDeviceGetApplicationsClock=True,
        nvmlDeviceGetMemoryInfo=True,
        nvmlDeviceGetComputeMode=True,
        nvmlDeviceGetCurrentClocksEventReasons=True,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)

    (gpu,) = nvml.gpus()

    assert gpu.application_sm_clock_hz is None
    assert gpu.free_memory_bytes is None
    assert gpu.compute_mode is None
    assert gpu.slowdowns == ()


@pytest.mark.parametrize("refusing", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"])
def test_a_lost_gpu_hides_no_other(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = library_that()
    library.nvmlDeviceGetCount = lambda: 3
    answers = getattr(library, refusing)

    def lost(handle: int) -> object:
        if handle == 1:
            raise NVMLError("GPU is lost")
        return answers(handle)

    setattr(library, refusing, lost)
    monkeypatch.setitem(sys.modules, "pynvml", library)

    gpus = nvml.gpus()

    assert [(gpu.index, gpu.name) for gpu in gpus] == [
        (0, "NVIDIA H200"),
        (1, "unknown"),
        (2, "NVIDIA H200"),
    ]
    assert [gpu.error for gpu in gpus] == ["", "NVML: GPU is lost", ""]
    assert library.open == 0


def test_a_library_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library_that(nvmlInit=True))

    with pytest.raises(DeviceError, match="NVML: Not Supported"):
        nvml.gpus()


def test_the_clock_is_that_of_the_gpu_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES renumbers GPUs for CUDA, but not for NVML."""
    clocks_mhz = {"0000:04:00.0": 345, "0000:0A:00.0": 1980}
    library: Any = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=list(clocks_mhz).__getitem__,
        nvmlDeviceGetHandleByPciBusId=str.upper,
        nvmlDeviceGetClockInfo=lambda handle, kind: clocks_mhz[handle],
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)

    with ExitStack() as stack:
        assert nvml.sm_clock_reader("0000:0a:00.0", stack)() == 1980e6


@pytest.mark.parametrize("refusing", ["nvmlInit", "nvmlDeviceGetClockInfo"])
def test_a_clock_that_cannot_be_read_is_none(
    refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_that(**{refusing: True})
    library.nvmlDeviceGetHandleByPciBusId = lambda pci_bus_id: 0
    monkeypatch.setitem(sys.modules, "pynvml", library)

    with ExitStack() as stack:
        assert nvml.sm_clock_reader("0000:0a:00.0", stack)() is None
    assert library.open == 0


def test_without_pynvml_the_clock_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with ExitStack() as stack:
        assert nvml.sm_clock_reader("0000:0a:00.0", stack)() is None


def test_energy_is_in_joules_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    library = library_that()
    library.nvmlDeviceGetHandleByPciBusId = lambda bus: bus
    library.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 12_500
    monkeypatch.setitem(sys.modules, "pynvml", library)
    with ExitStack() as stack:
        read = nvml.energy_reader("0000:01:00.0", stack)
        assert read() == 12.5
        del library.nvmlDeviceGetTotalEnergyConsumption
        assert read() is None
    assert library.open == 0
