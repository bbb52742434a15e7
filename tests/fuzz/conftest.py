"""What all fuzz tests share."""

from collections.abc import Iterator

import pytest

from memlab.device.compiler import nvcc


@pytest.fixture(autouse=True, scope="module")
def _without_nvcc() -> Iterator[None]:
    """NVRTC alone compiles: nvcc takes a second for each of the sources that NVRTC refuses.

    It ends with each module, since the tests of other folders may run between two of them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvcc, "find_toolchain", lambda: None)
        yield
