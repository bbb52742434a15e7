"""The GPU's properties, choice and launches, tested with a fake driver."""

import ctypes
import json
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from paths import DATA, REPOSITORY

from memlab.cli.app import main
from memlab.device import devices
from memlab.device.compiler.compile import compile_kernel
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits, open_device
from memlab.device.gpu import driver as gpu_driver
from memlab.device.gpu import kernel_driver, libcuda
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.device import _argument_words, with_datasheet
from memlab.device.gpu.session import GpuSession
from memlab.device.inputs import POISON_BYTE, count_unwritten, make_inputs, pack_arguments
from memlab.device.properties import DeviceProperties, known_figures
from memlab.device.verification import ActualOutput, checked_positions, verify
from memlab.errors import DeviceError, UsageError
from memlab.kernels.catalog import find_kernel
from memlab.kernels.launch import Launch, Scalar
from memlab.kernels.user.arguments.specifications import NUMPY_DTYPES
from memlab.roofline.ceilings import ceilings
from memlab.roofline.reports.device import device_query_lines, memory_lab_lines

ATTRIBUTES = json.loads((DATA / "h200-attributes.json").read_text())["attributes"]
"""Every attribute of an H200 by PyCUDA's name for it, in the driver's units."""

SUPPORT = REPOSITORY / "kernels" / "support"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a driver, a GPU or PyCUDA."""
    monkeypatch.delenv("MEMLAB_DEVICE", raising=False)
    monkeypatch.setattr(libcuda, "is_installed", lambda: False)
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    gpu_driver.pycuda_driver.cache_clear()


def naive(width: int) -> Launch:
    return find_kernel("naive").prepare(
        {"width": width}, launch_limits(loader.load_datasheet("h200"))
    )


@pytest.mark.parametrize("field", [*gpu_query.NUMERIC_ATTRIBUTES, *gpu_query.EXTENT_ATTRIBUTES])
def test_the_driver_is_asked_for_what_a_field_means(field: str) -> None:
    expected = getattr(loader.load_datasheet("h200"), field)
    if field in gpu_query.EXTENT_ATTRIBUTES:
        assert (
            tuple(ATTRIBUTES[f"{gpu_query.EXTENT_ATTRIBUTES[field]}_{axis}"] for axis in "XYZ")
            == expected
        )
    else:
        name, unit = gpu_query.NUMERIC_ATTRIBUTES[field]
        assert ATTRIBUTES[name] * unit == expected


def test_flags_are_known_attributes() -> None:
    named = {
        field: name for field, name in gpu_query.FLAG_ATTRIBUTES.items() if isinstance(name, str)
    }
    sheet = loader.load_datasheet("h200")

    assert {field: bool(ATTRIBUTES[name]) for field, name in named.items()} == {
        field: getattr(sheet, field) for field in named
    }


def test_what_the_driver_gives_wins_over_the_datasheet() -> None:
    queried = DeviceProperties(
        "NVIDIA H200",
        (9, 0),
        sources=dict.fromkeys(
            ("multiprocessor_count", "compute_capability"), gpu_query.QUERY_SOURCE
        ),
        multiprocessor_count=114,
    )
    known = with_datasheet(queried)

    assert known.multiprocessor_count == 114
    assert known.sources["multiprocessor_count"].startswith("queried")
    assert known.fp32_lanes_per_sm == 128
    assert known.sources["fp32_lanes_per_sm"].startswith("datasheet")
    assert known.l2_bytes_per_clock == loader.load_datasheet("h200").l2_bytes_per_clock
    assert set(known.sources) == set(known_figures(known))


def test_of_a_gpu_without_a_datasheet_only_the_architecture_is_known() -> None:
    known = with_datasheet(DeviceProperties("NVIDIA GeForce RTX 3090", (8, 6)))

    assert known.fp32_lanes_per_sm == 128
    assert known.l2_bytes_per_clock is None
    assert known.multiprocessor_count is None
    assert known.total_memory_bytes is None


@pytest.mark.parametrize("name", loader.datasheet_names())
def test_lanes_by_compute_capability_are_those_of_the_datasheets(name: str) -> None:
    sheet = loader.load_datasheet(name)
    single, double = sheet.fp32_lanes_per_sm, sheet.fp64_lanes_per_sm
    if sheet.compute_capability not in gpu_query.FP32_LANES_PER_SM or not single or not double:
        pytest.skip("a made-up device, or one whose lanes of double precision are not known")

    assert gpu_query.fma_lanes_per_sm(sheet.compute_capability, single // double) == {
        "fp32_lanes_per_sm": single,
        "fp64_lanes_per_sm": double,
    }


def test_of_a_gpu_newer_than_the_datasheets_the_peak_is_known() -> None:
    assert gpu_query.fma_lanes_per_sm((11, 0), None) == {"fp32_lanes_per_sm": 128}
    assert gpu_query.fma_lanes_per_sm((12, 0), 64)["fp64_lanes_per_sm"] == 2
    assert gpu_query.fma_lanes_per_sm((99, 0), 2) == {}


def test_of_an_unknown_architecture_nothing_is_guessed() -> None:
    queried = DeviceProperties("NVIDIA Newest", (13, 7))

    assert with_datasheet(queried) is queried


def test_without_a_gpu_the_h200_is_emulated(no_gpu: None) -> None:
    assert open_device().key == "h200"
    assert devices.usable_gpu_names() == []


def test_a_gpu_that_is_asked_for_and_missing_says_how_to_go_on(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyCUDA cannot be built without a driver, so the driver is named first."""
    for name in ("0", "cuda:0", "cuda", "7", 0, 7, np.int64(7)):
        with monkeypatch.context() as patch:
            with pytest.raises(DeviceError, match=r"driver .*memlab doctor.*--device h200"):
                open_device(name)
            patch.setattr(libcuda, "is_installed", lambda: True)
            patch.setattr(libcuda, "visible_gpus", lambda: 8)
            with pytest.raises(DeviceError, match=r"PyCUDA .*memlab\[gpu\].*--device h200"):
                open_device(name)


@pytest.mark.parametrize("name", ["3070", 3070, "cuda:3070"])
def test_a_number_that_is_no_gpus_may_be_a_datasheets(no_gpu: None, name: str | int) -> None:
    with pytest.raises(UsageError, match=r"no GPU 3070 here: did you mean 'rtx3070'\?"):
        open_device(name)


@pytest.mark.parametrize("name", [1.5, [0], b"h200"])
def test_a_device_is_a_text_or_an_index(no_gpu: None, name: Any) -> None:
    with pytest.raises(UsageError, match="a datasheet's name or file, or a GPU's index, got"):
        open_device(name)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("libcuda.so.1: cannot open shared object file", "no NVIDIA driver is installed"),
        ("libcurand.so.9: cannot open shared object file", "built for another CUDA"),
        ("_driver.so: undefined symbol: cuDeviceGetP2PAttribute", "built for another CUDA"),
    ],
)
def test_a_broken_pycuda_says_what_to_do(reason: str, said: str) -> None:
    message = gpu_driver._cannot_import(ImportError(reason))

    assert said in message
    assert reason in message
    assert "--device h200" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["cuda:x", "cuda:", "cuda:-1", "cudart", "cuda0"])
def test_a_mistyped_gpu_is_wrong_usage(name: str) -> None:
    with pytest.raises(UsageError, match="a GPU is a number"):
        open_device(name)


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0), (12, 0)])
@pytest.mark.parametrize(
    ("file", "entry"),
    [("flush.cu", "flush_write"), ("flush.cu", "flush_read"), ("hold.cu", "hold")],
)
def test_timing_kernels_compile_without_spills(
    file: str, entry: str, capability: tuple[int, int]
) -> None:
    compiled = compile_kernel(
        TranslationUnit((SUPPORT / file).read_text(), file, capability), entry
    )

    assert compiled.resources.local_bytes_per_thread == 0
    assert compiled.log == ""


def test_a_driver_that_fails_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Error(Exception):
        pass

    class Device:
        @staticmethod
        def count() -> int:
            raise Error("cuDeviceGetCount failed: unknown error")

    monkeypatch.setattr(
        gpu_driver, "pycuda_driver", lambda: SimpleNamespace(Error=Error, Device=Device)
    )
    with pytest.raises(DeviceError, match=r"cuDeviceGetCount failed.*--device h200"):
        gpu_query.query_properties(0)


def gpus_seen(monkeypatch: pytest.MonkeyPatch, seen: int | str, pycuda: object = None) -> None:
    """A machine whose driver shows a number of GPUs or an error, with a fake PyCUDA."""

    def visible() -> int:
        if isinstance(seen, str):
            raise DeviceError(seen)
        return seen

    monkeypatch.delenv("MEMLAB_DEVICE", raising=False)
    monkeypatch.setattr(libcuda, "is_installed", lambda: True)
    monkeypatch.setattr(libcuda, "visible_gpus", visible)
    monkeypatch.setitem(sys.modules, "pycuda", pycuda)
    monkeypatch.setitem(sys.modules, "pycuda.driver", pycuda)
    gpu_driver.pycuda_driver.cache_clear()
    devices._warn_gpu_unusable.cache_clear()


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (1, "PyCUDA cannot be used"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "driver answers CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        ("CUDA_ERROR_NO_DEVICE", ""),
        ("CUDA_ERROR_STUB_LIBRARY", ""),
        (0, ""),
    ],
)
def test_a_gpu_that_cannot_be_used_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    capsys: pytest.CaptureFixture[str],
    seen: int | str,
    reason: str,
) -> None:
    gpus_seen(monkeypatch, seen)
    assert main(["devicequery", "--device", "h200"]) == 0
    assert not recwarn

    for _ in range(2):  # both with an emulated H200
        assert main(["devicequery"]) == 0
    assert len(recwarn) == bool(reason)
    for warning in recwarn:  # what Python prints on stderr
        line = warnings.formatwarning(
            warning.message, warning.category, warning.filename, warning.lineno
        )
        assert line.startswith("memlab: a GPU may be here, but ")
        assert reason in line
        assert "'memlab doctor'" in line
        assert line.count("\n") == 1

    assert main(["peaks"]) == 3
    said = capsys.readouterr().err
    assert (reason or "h200 is emulated") in said
    assert said.count("\n") == 1


class Function:
    """The methods of PyCUDA's device; it takes any other name for an attribute to read."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def set_attribute(self, attribute: str, value: int) -> None:
        self.asked += [attribute, value]

    def __call__(self, *arguments: object, **launch: object) -> None:
        self.asked.append(launch["shared"])


@pytest.mark.parametrize(
    ("shared", "asked"), [(48 * 1024, [49152]), (64 * 1024, ["most", 65536, 65536])]
)
def test_shared_memory_beyond_the_default_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, shared: int, asked: list[object]
) -> None:
    names = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="most")
    monkeypatch.setattr(
        gpu_driver, "pycuda_driver", lambda: SimpleNamespace(function_attribute=names)
    )
    function = Function()
    GpuSession(0).launch(function, (1, 1, 1), (32, 1, 1), [], shared)

    assert function.asked == asked


@pytest.mark.parametrize("dtype", NUMPY_DTYPES.values())
def test_arguments_are_numbers_that_pycuda_packs(dtype: str) -> None:
    arguments = pack_arguments(
        [Scalar("x", dtype, 1), Scalar("y", "float64", 2.5), Scalar("z", dtype, 0)], {}
    )
    words = _argument_words(arguments)

    assert all(isinstance(word, np.number) for word in words)
    assert {word.dtype.char for word in words} <= set("bBhHiIlLqQfd")  # pycuda._pvt_struct.pack
    assert b"".join(word.tobytes() for word in words) == arguments


def test_small_outputs_are_compared_whole() -> None:
    assert np.array_equal(checked_positions(naive(100), (100, 100), 0), np.arange(10_000))


def test_of_large_outputs_first_last_and_random_rows_are_compared() -> None:
    width = 16384
    positions = checked_positions(naive(width), (width, width), 3)
    rows, counts = np.unique(positions // width, return_counts=True)

    assert (counts == width).all()
    assert {0, width - 1} < set(rows.tolist())
    assert 2 * width * len(positions) <= 2.1e10
    assert len(rows) > 20
    assert not np.array_equal(positions, checked_positions(naive(width), (width, width), 4))


def test_an_element_that_was_not_written_fails() -> None:
    launch = naive(64)
    inputs = make_inputs(launch, 0)
    output = (inputs["M"].astype(np.float64) @ inputs["N"]).astype(np.float32)
    compared = np.arange(64)

    def status() -> str:
        found = ActualOutput(compared, output[0], count_unwritten(output))
        return verify(launch, inputs, {"P": found}).status

    assert status() == "passed"

    output[40, 5] = np.frombuffer(bytes([POISON_BYTE] * 4), np.float32)[0]  # not compared

    assert status() == "failed"


def gpu_that_answers(monkeypatch: pytest.MonkeyPatch, answers: dict[str, int]) -> None:
    """One GPU with these attributes and no others."""

    class Error(Exception):
        pass

    class Device:
        count = staticmethod(lambda: 1)

        def __init__(self, index: int) -> None:
            assert index == 0

        def name(self) -> str:
            return "NVIDIA Unlisted"

        def compute_capability(self) -> tuple[int, int]:
            return 9, 0

        def total_memory(self) -> int:
            return 2**30

        def get_attribute(self, name: str) -> int:
            if name not in answers:
                raise Error("cuDeviceGetAttribute failed: invalid argument")
            return answers[name]

    class Names:
        """PyCUDA's enumeration: its names are attributes, its numbers are arguments."""

        def __init__(self) -> None:
            self.names = {name: number for number, name in enumerate(ATTRIBUTES, 200)}

        def __getattr__(self, name: str) -> str:
            if name not in ATTRIBUTES:
                raise AttributeError(name)
            return name

        def __call__(self, number: int) -> str:
            named = {
                number: name for name, number in (self.names | gpu_query.UNNAMED_ATTRIBUTES).items()
            }
            return named[number]

    pycuda = SimpleNamespace(
        Error=Error,
        Device=Device,
        device_attribute=Names(),
        get_driver_version=lambda: 13010,
        get_version=lambda: (12, 8, 0),
    )
    monkeypatch.setattr(gpu_driver, "pycuda_driver", lambda: pycuda)
    monkeypatch.setattr(libcuda, "gpu_uuid", lambda index: "GPU-1")


# Thor (compute capability 11.0) returns 0 for its memory's clock and bus width.
@pytest.mark.parametrize("field", gpu_query.UNKNOWN_IF_ZERO)
def test_a_zero_that_no_gpu_can_have_is_unknown(
    monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    name, _ = gpu_query.NUMERIC_ATTRIBUTES[field]
    gpu_that_answers(monkeypatch, ATTRIBUTES | {name: 0, "COMPUTE_MODE": 0, "ECC_ENABLED": 0})
    known = with_datasheet(gpu_query.query_properties(0))

    assert getattr(known, field) is None
    assert field not in known.sources
    assert (known.compute_mode, known.ecc_enabled) == (0, False)
    assert [*device_query_lines({"cuda:0": known}), *memory_lab_lines(known)]
    assert all(ceiling.value > 0 for ceiling in ceilings(known))


def test_what_is_the_machines_is_never_a_datasheets(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_that_answers(monkeypatch, {"MULTIPROCESSOR_COUNT": 114})
    monkeypatch.setattr(kernel_driver, "driver_release", lambda: "580.159.04")
    known = with_datasheet(replace(gpu_query.query_properties(0), name="NVIDIA H200"))

    assert known.multiprocessor_count == 114
    assert known.clock_rate_hz == loader.load_datasheet("h200").clock_rate_hz
    assert known.pci_bus_id is known.ecc_enabled is known.compute_mode is None
    assert known.kernel_exec_timeout is None
    assert (known.driver_version, known.driver_release) == ("13.1", "580.159.04")
    assert known.uuid == "GPU-1"


def test_every_attribute_is_asked_for_and_none_that_is_refused_is_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu_that_answers(monkeypatch, ATTRIBUTES | {"COOPERATIVE_LAUNCH": 1})

    expected = ATTRIBUTES | {"COOPERATIVE_LAUNCH": 1, "COOPERATIVE_MULTI_DEVICE_LAUNCH": None}
    assert gpu_query.query_attributes(0) == expected


def test_the_identity_of_a_gpu_is_written_as_nvidia_smi_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def call(name: str, *arguments: Any) -> None:
        if name == "cuDeviceGetUuid_v2":
            ctypes.memmove(arguments[0], bytes(range(16)), 16)

    monkeypatch.setattr(libcuda, "call_driver", call)
    assert libcuda.gpu_uuid(0) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
