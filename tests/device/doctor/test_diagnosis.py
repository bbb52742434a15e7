"""The doctor's findings and advice for described machines."""

from dataclasses import replace
from pathlib import Path

import pytest

from memlab.device.doctor.diagnosis import DiagnosisItem, diagnose, select_visible_gpus
from memlab.device.doctor.probes import MachineState, Probes, probe_machine
from memlab.device.gpu.nvml import Gpu
from memlab.errors import DeviceError

H200 = Gpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-11111111-aaaa",
    compute_capability=(9, 0),
    sm_clock_hz=345_000_000,
    maximum_sm_clock_hz=1_980_000_000,
    memory_clock_hz=3_201_000_000,
    free_memory_bytes=149_000_000_000,
    total_memory_bytes=150_754_820_096,
    compute_mode="default",
)
HEALTHY = MachineState(
    driver="580.159.04",
    driver_cuda=(13, 0),
    visible_gpus=1,
    gpus=(H200,),
    nvml="13.615.71",
    pycuda="2026.1",
    pycuda_cuda=(13, 0),
    nvrtc=(13, 5),
    nvrtc_architectures=((7, 5), (9, 0), (12, 1)),
    nvcc="nvcc 13.5.37 with gcc 12.2.0",
    cuobjdump="/usr/local/cuda/bin/cuobjdump",
    nvdisasm="/usr/local/cuda/bin/nvdisasm",
    ncu="/usr/local/cuda/bin/ncu",
    counters_restricted=True,
    privileged=True,
    emulator=True,
)
BARE = MachineState(
    nvrtc=(13, 5),
    nvrtc_architectures=((7, 5), (9, 0)),
    nvdisasm="/bin/nvdisasm",
    emulator=True,
    errors={"driver": "no NVIDIA driver is loaded", "pycuda": "not installed"},
)


def found(machine: MachineState, subject: str) -> DiagnosisItem:
    return next(item for item in diagnose(machine).findings if item.subject == subject)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (BARE, "not installed"),
        (replace(BARE, errors={"nvcc": "nvcc needs g++"}), "nvcc needs g++"),
    ],
)
def test_without_nvcc_the_doctor_tells_what_needs_it(state, said) -> None:
    item = found(state, "nvcc")
    assert (item.state, item.found) == ("note", said)
    assert item.advice == "only files that NVRTC refuses need it: pip install 'memlab[nvcc]'"


def test_without_cuobjdump_the_doctor_tells_what_needs_it() -> None:
    item = found(BARE, "cuobjdump")
    assert (item.state, item.found) == ("note", "not installed")
    assert item.advice == (
        "only kernels in .fatbin, .o, .so and programs need it: pip install 'memlab[nvcc]'"
    )


def test_without_nvdisasm_the_doctor_tells_what_is_less_exact() -> None:
    item = found(replace(BARE, nvdisasm=None), "nvdisasm")
    assert (item.state, item.found) == ("note", "not installed")
    assert item.advice == (
        "without it instructions are those of the PTX and modelled times are less exact: "
        "pip install nvidia-cuda-nvdisasm"
    )


def test_without_nvrtc_one_item_has_the_reason_and_the_step() -> None:
    error = "NVRTC cannot be loaded (no such file): pip install nvidia-cuda-nvrtc cuda-bindings"
    errors = {"nvrtc": error, "emulator": error}
    machine = replace(BARE, nvrtc=None, emulator=False, errors=errors)
    assert found(machine, "NVRTC") == DiagnosisItem(
        "NVRTC",
        "fails",
        "NVRTC cannot be loaded (no such file)",
        "pip install nvidia-cuda-nvrtc cuda-bindings",
    )
    assert found(machine, "emulator") == DiagnosisItem(
        "emulator", "fails", "nothing compiles", "needs NVRTC first"
    )


def test_a_healthy_machine_has_nothing_to_mend() -> None:
    diagnosis = diagnose(HEALTHY)

    assert diagnosis.gpu_works
    assert diagnosis.emulator_works
    assert {item.state for item in diagnosis.findings} == {"works"}
    assert not any(item.advice for item in diagnosis.findings)


def test_a_lost_gpu_is_named_beside_those_that_work() -> None:
    lost = Gpu(1, "unknown", uuid="", compute_capability=None, error="NVML: GPU is lost")
    machine = replace(HEALTHY, gpus=(H200, lost))

    assert diagnose(machine).gpu_works
    assert found(machine, "GPUs").found == "1 visible: NVIDIA H200"
    assert found(machine, "clocks 0").state == "works"
    assert (found(machine, "GPU 1").state, found(machine, "GPU 1").found) == (
        "note",
        "NVML: GPU is lost",
    )


def test_without_a_gpu_the_emulator_works_and_no_gpu_software_is_urged() -> None:
    diagnosis = diagnose(BARE)

    assert not diagnosis.gpu_works
    assert diagnosis.emulator_works
    assert found(BARE, "driver").found == "no NVIDIA driver is loaded"
    assert "--device h200" in found(BARE, "driver").advice
    urged = (item for item in diagnosis.findings if item.subject not in ("nvcc", "cuobjdump"))
    assert not any("pip install" in item.advice for item in urged)


@pytest.mark.parametrize(
    ("broken", "subject", "state", "advice"),
    [
        ({"driver_cuda": (12, 8)}, "NVRTC", "fails", "update it to 580 or later"),
        ({"driver_cuda": (12, 8)}, "PyCUDA", "fails", "update it to 580 or later"),
        # Within a major version a newer compiler's cubins load: NVIDIA, "CUDA Compatibility".
        ({"nvrtc": (13, 9), "pycuda_cuda": (12, 6)}, "NVRTC", "works", ""),
        ({"nvrtc": None}, "NVRTC", "fails", "pip install nvidia-cuda-nvrtc"),
        (
            {"gpus": (replace(H200, compute_capability=(7, 0)),)},
            "NVRTC",
            "fails",
            "another GPU or an emulated device",
        ),
        (
            {"gpus": (replace(H200, compute_capability=(13, 0)),)},
            "NVRTC",
            "fails",
            "pip install --upgrade nvidia-cuda-nvrtc",
        ),
        ({"pycuda": None}, "PyCUDA", "fails", "pip install 'memlab[gpu]', which needs g++"),
        (
            {"pycuda": None, "errors": {"pycuda": "libcurand.so.12 is not there"}},
            "PyCUDA",
            "fails",
            "--force-reinstall --no-cache-dir pycuda",
        ),
        ({"visible_gpus": 0, "visible_devices": ""}, "GPUs", "fails", "unset CUDA_VISIBLE_DEVICES"),
        (
            {"visible_gpus": 0, "visible_devices": "0", "gpus": ()},
            "GPUs",
            "fails",
            "look at 'nvidia-smi'",
        ),
        ({"nvml": None}, "nvidia-ml-py", "note", "pip install 'memlab[gpu]'"),
        ({"ncu": None}, "Nsight Compute", "note", "only --counters ncu needs it"),
        (
            {"privileged": False},
            "Nsight Compute",
            "note",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ({"privileged": False, "counters_restricted": False}, "Nsight Compute", "works", ""),
        (
            {"gpus": (replace(H200, slowdowns=("power limit",)),)},
            "clocks",
            "note",
            "times are those of a slower GPU",
        ),
        (
            {"gpus": (replace(H200, free_memory_bytes=2**20),)},
            "memory",
            "note",
            "nvidia-smi",
        ),
        ({"gpus": (replace(H200, free_memory_bytes=2**30),)}, "memory", "works", ""),
        (
            {"gpus": (replace(H200, compute_mode="prohibited"),)},
            "compute mode",
            "fails",
            "nvidia-smi -c DEFAULT",
        ),
        ({"emulator": False}, "emulator", "fails", "reinstall"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(
    broken: dict[str, object], subject: str, state: str, advice: str
) -> None:
    machine = replace(HEALTHY, **broken)  # type: ignore[arg-type]
    finding = found(machine, subject)

    assert finding.state == state
    assert advice in finding.advice
    diagnosis = diagnose(machine)
    failing = {item.subject for item in diagnosis.findings if item.state == "fails"}
    assert diagnosis.gpu_works == (not failing - {"emulator"})


def test_a_driver_whose_cuda_library_is_missing_is_not_taken_for_no_driver() -> None:
    container = replace(HEALTHY, driver_cuda=None, errors={"driver_cuda": "no libcuda.so.1"})

    assert found(container, "driver").found == "580.159.04, but no libcuda.so.1"
    assert "--gpus all" in found(container, "driver").advice


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("1, 7, 0", [1]),
        ("GPU-22", [1]),
        ("GPU-", []),
        ("0,0", [0]),
    ],
)
def test_the_visible_gpus_are_those_that_cuda_shows(value: str | None, indices: list[int]) -> None:
    gpus = tuple(replace(H200, index=n, uuid=f"GPU-{n + 1}{n + 1}0") for n in range(3))

    assert [gpu.index for gpu in select_visible_gpus(gpus, value)] == indices


@pytest.mark.parametrize(("value", "count"), [("", 0), ("GPU-", 1)])
def test_an_empty_list_hides_a_single_gpu(value: str, count: int) -> None:
    assert len(select_visible_gpus((H200,), value)) == count


def test_several_gpus_are_told_apart() -> None:
    hot = replace(H200, index=1, uuid="GPU-2", slowdowns=("hardware thermal limit",))
    machine = replace(HEALTHY, gpus=(H200, hot), visible_gpus=2)

    assert found(machine, "clocks 0").state == "works"
    assert "hardware thermal limit" in found(machine, "clocks 1").found


def test_a_probe_that_breaks_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def broken() -> object:
        raise DeviceError("two\nlines")

    def crashing() -> object:
        raise RuntimeError

    machine = probe_machine(
        Probes(
            driver=lambda: "580.1",
            driver_cuda=lambda: (13, 0),
            visible_gpus=lambda: 1,
            nvml=lambda: "13",
            gpus=crashing,  # type: ignore[arg-type]
            pycuda=broken,  # type: ignore[arg-type]
            nvrtc=lambda: ((13, 0), ((9, 0),)),
            nvcc=lambda: "nvcc 13.5.37 with gcc 12.2.0",
            cuobjdump=lambda: Path("/bin/cuobjdump"),
            nvdisasm=lambda: Path("/bin/nvdisasm"),
            ncu=lambda: Path("/bin/ncu"),
            counters_restricted=lambda: True,
            privileged=lambda: False,
            emulator=lambda: True,
        )
    )

    assert machine.errors == {"pycuda": "two lines", "gpus": "RuntimeError"}
    assert machine.driver == "580.1"
    assert machine.nvrtc_architectures == ((9, 0),)
    assert machine.visible_devices == "0"
    assert machine.ncu == "/bin/ncu"
    assert machine.cuobjdump == "/bin/cuobjdump"
    assert machine.nvdisasm == "/bin/nvdisasm"
    assert machine.nvcc == "nvcc 13.5.37 with gcc 12.2.0"


def test_the_real_probes_end_on_any_machine() -> None:
    machine = probe_machine()

    assert machine.emulator
    assert diagnose(machine).emulator_works
    assert all("\n" not in reason for reason in machine.errors.values())
