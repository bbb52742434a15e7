"""The probes of the driver's files and of PyCUDA, on recorded and invented machines."""

from pathlib import Path

import pytest

from memlab.device.doctor import probes
from memlab.errors import DeviceError


@pytest.fixture
def pycuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package that claims to be PyCUDA."""

    def install(source: str) -> None:
        (tmp_path / "pycuda").mkdir()
        (tmp_path / "pycuda" / "__init__.py").touch()
        (tmp_path / "pycuda" / "driver.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(probes.metadata, "version", lambda package: "2026.1")

    return install


def test_pycuda_says_what_it_was_built_for(pycuda) -> None:
    pycuda("def get_version(): return (13, 0, 0)")

    assert probes.pycuda() == ("2026.1", (13, 0))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('libcurand.so.12: no such file')", "libcurand.so.12: no such file"),
        ("import os; os._exit(7)", "exit code 7"),
    ],
)
def test_a_pycuda_that_does_not_fit_harms_nobody(pycuda, source: str, reason: str) -> None:
    pycuda(source)

    with pytest.raises(DeviceError, match=reason):
        probes.pycuda()
