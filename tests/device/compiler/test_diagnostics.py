"""What an error of the compiler shows of its log."""

from memlab.device.compiler.diagnostics import _errors_first


def test_the_errors_of_ptxas_come_without_its_warnings_and_advice() -> None:
    log = (
        "ptxas k.ptx, line 7; info    : Advisory: Modifier '.sp' is slow\n"
        "a.cu(2): ptxas warning: Unused label\n"
        "a.cu(3): ptxas error: Unknown modifier '.bar'\n"
    )
    assert _errors_first(log, "a.cu") == "a.cu(3): ptxas error: Unknown modifier '.bar'"
