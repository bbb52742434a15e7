"""The translation of driver errors from PyCUDA's texts."""

import pytest

from memlab.device.gpu.driver import USE_EMULATOR_STEP, translate_error
from memlab.errors import DeviceError, MemlabError, UsageError


@pytest.mark.parametrize(
    ("text", "kind", "happened", "step"),
    [
        (
            "cuCtxSynchronize failed: an illegal memory access was encountered",
            MemlabError,
            "ILLEGAL_ADDRESS",
            "--device h200, which names the line",
        ),
        (
            "cuCtxSynchronize failed: misaligned address",
            MemlabError,
            "MISALIGNED_ADDRESS",
            "--device h200, which names the line",
        ),
        (
            "cuEventSynchronize failed: the launch timed out and was terminated",
            MemlabError,
            "LAUNCH_TIMEOUT",
            "a GPU without a display",
        ),
        ("cuMemAlloc failed: out of memory", UsageError, "OUT_OF_MEMORY", "use smaller sizes"),
        (
            "cuLaunchKernel failed: too many resources requested for launch",
            UsageError,
            "OUT_OF_RESOURCES",
            "use a smaller block",
        ),
        ("cuLaunchKernel failed: invalid argument", UsageError, "refused", "devicequery"),
        ("cuLaunchKernel failed: invalid value", UsageError, "refused", "devicequery"),
        (
            "cuModuleLoadDataEx failed: no kernel image is available for execution on the device",
            DeviceError,
            "NO_BINARY_FOR_GPU",
            "update the NVIDIA driver",
        ),
        (
            "cuModuleLoadDataEx failed: device kernel image is invalid",
            DeviceError,
            "INVALID_IMAGE",
            "nvidia-cuda-nvrtc no newer",
        ),
        (
            "cuModuleLoadDataEx failed: the provided PTX was compiled with an unsupported "
            "toolchain.",
            DeviceError,
            "UNSUPPORTED_PTX_VERSION",
            "nvidia-cuda-nvrtc no newer",
        ),
        (
            "cuDevicePrimaryCtxRetain failed: CUDA-capable device(s) is/are busy or unavailable",
            DeviceError,
            "DEVICE_UNAVAILABLE",
            "nvidia-smi",
        ),
        (
            "cuCtxSynchronize failed: uncorrectable ECC error encountered",
            DeviceError,
            "ECC_UNCORRECTABLE",
            "nvidia-smi -q -d ECC",
        ),
        # A __trap() causes either error, depending on the driver's release.
        (
            "cuCtxSynchronize failed: an illegal instruction was encountered",
            MemlabError,
            "ILLEGAL_INSTRUCTION",
            "__trap()",
        ),
        (
            "cuCtxSynchronize failed: unspecified launch failure",
            MemlabError,
            "LAUNCH_FAILED",
            "--device h200",
        ),
        (
            "cuCtxSynchronize failed: device-side assert triggered",
            MemlabError,
            "assert()",
            "to see where",
        ),
        (
            "cuInit failed: no CUDA-capable device is detected",
            DeviceError,
            "finds no GPU",
            "CUDA_VISIBLE_DEVICES",
        ),
        (
            "cuInit failed: system not yet initialized",
            DeviceError,
            "not ready",
            "nvidia-fabricmanager",
        ),
        (
            "cuInit failed: system has unsupported display driver / cuda driver combination",
            DeviceError,
            "different version",
            "restart the machine",
        ),
        (
            "cuMemAlloc failed: unknown error",
            DeviceError,
            "cuMemAlloc failed: unknown error",
            "still there",
        ),
    ],
)
def test_errors_of_the_driver_say_what_happened_and_what_to_do(
    text: str, kind: type[MemlabError], happened: str, step: str
) -> None:
    error, own = (translate_error("naive", Exception(text), own) for own in (False, True))

    assert type(error) is type(own) is kind
    assert str(error).startswith("naive ")
    assert step in str(error).partition(happened)[2]
    assert kind is not DeviceError or USE_EMULATOR_STEP in str(error)
    # A user who measures peaks cannot choose sizes, change kernels, or do without a GPU.
    assert not any(words in str(own) for words in ("--device", "smaller", "source", "devicequery"))
