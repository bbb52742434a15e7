"""Third-party kernels give NumPy's results, and `check` has no findings for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from third_party import (
    HOPPER,
    THIRD_PARTY_KERNELS,
    ThirdPartyKernel,
    assertions_that_hold,
    third_party_launch,
)

from memlab.device.budget import Budget
from memlab.device.checking.check import check_launch
from memlab.device.compiler.compile import compile_launch
from memlab.device.emulation import counting, representative_block
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.machine.printf import (
    MAX_FIELD_WIDTH,
    MAX_PRINTED_CHARACTERS,
    MAX_PRINTED_LINES,
    format_printf,
)
from memlab.device.measurement import DeviceSummary
from memlab.kernels.launch import Launch

pytestmark = pytest.mark.slow

BUDGET = Budget(timeout_s=20)
CASES = [
    pytest.param(make, architecture, id=f"{make.__name__}-sm_{architecture[0]}{architecture[1]}")
    for make in THIRD_PARTY_KERNELS
    for architecture in make().architectures
]


def run(launch: Launch, architecture: tuple[int, int]) -> dict[str, Any]:
    """The outputs, executed as by `memlab run`: a representative block first."""
    execution = Execution.of(launch, compile_launch(launch, architecture), 0, BUDGET)
    counting.count_grid(
        execution,
        representative_block.record_block(execution).lane_instructions_per_block,
        lambda what, fraction: None,
    )
    return {output.name: execution.array(output).copy() for output in launch.outputs}


@pytest.mark.parametrize(("make", "architecture"), CASES)
def test_a_kernel_gives_the_results_of_numpy(
    make: Any, architecture: tuple[int, int], tmp_path: Path
) -> None:
    kernel = make()

    found = run(third_party_launch(kernel, tmp_path), architecture)

    for name, expected in kernel.outputs.items():
        values = np.sort(found[name]) if name in kernel.loose else found[name]
        wanted = np.sort(expected) if name in kernel.loose else expected
        if wanted.dtype.kind == "f" and kernel.within:
            np.testing.assert_allclose(
                values, wanted, rtol=kernel.within, atol=kernel.within, err_msg=name
            )
        else:
            np.testing.assert_array_equal(values, wanted, err_msg=name)


@pytest.mark.parametrize("make", [kernel for kernel in THIRD_PARTY_KERNELS if kernel().checked])
def test_a_correct_kernel_has_no_finding(make: Any, tmp_path: Path) -> None:
    kernel = make()
    launch = third_party_launch(kernel, tmp_path)
    device = DeviceSummary("NVIDIA H200", "emulated", HOPPER, "h200")

    report = check_launch(launch, compile_launch(launch, HOPPER), device, budget=BUDGET)

    # `many_kinds` adds with block scope to one word from two blocks: a mistake without effect here.
    assert [finding for finding in report.findings if "block scope" not in finding.message] == []


def test_an_assertion_that_fails_is_named(tmp_path: Path) -> None:
    kernel = assertions_that_hold()
    kernel.inputs["x"][70] = -1

    with pytest.raises(KernelFault) as error:
        run(third_party_launch(kernel, tmp_path), HOPPER)

    assert str(error.value).startswith(
        'assertion failed: x[i] >= 0 && "negative input", by block (2, 0, 0) thread (6, 0, 0), line'
    )


def printing(count: int) -> ThirdPartyKernel:
    x = np.full(count, 3, "i4")
    inputs = {"x": x, "n": np.int32(count)}
    return ThirdPartyKernel(
        "language.prints", "x out n", inputs, {"out": x}, {}, (-(-count // 32), 1, 1)
    )


def test_printf_prints_once_for_each_thread_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(third_party_launch(printing(2), tmp_path), HOPPER)

    line = "thread {} of 2: 1.500000 text q  0.33 3298534883328 7 ff %\n"
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", line.format(0) + line.format(1) + "done\n")


def test_printf_output_is_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(third_party_launch(printing(3000), tmp_path), HOPPER)

    *lines, last = capsys.readouterr().err.splitlines()
    assert len(lines) == MAX_PRINTED_LINES
    assert last == f"(output after {MAX_PRINTED_LINES} calls of printf is left out)"


def test_formats_follow_c() -> None:
    values = np.array([-5, 7], "i4").tobytes() + np.array([2.5]).tobytes()
    values += np.array([2**63], "u8").tobytes() + np.array([255, 6], "i4").tobytes()

    text = format_printf("%-4d|%u|%.3e|%llu|%#x|%*d%%", values + np.array([9], "i4").tobytes(), str)

    assert text == "-5  |7|2.500e+00|9223372036854775808|0xff|     9%"


@pytest.mark.parametrize(
    ("form", "values", "printed"),
    [
        ("%.*f|", (np.int32(-1), np.float64(1.5)), "1.500000|"),  # as without a precision
        ("%*d|", (np.int32(-5), np.int32(7)), "7    |"),  # as with the flag -
        ("%.f|", (np.float64(2.5),), "2|"),
        ("%*d", (np.int32(2**31 - 1), np.int32(1)), "1".rjust(MAX_FIELD_WIDTH)),
        ("%999999999d", (np.int32(1),), "1".rjust(MAX_FIELD_WIDTH)),
        ("%.*d", (np.int32(2**31 - 1), np.int32(1)), "1".zfill(MAX_FIELD_WIDTH)),
        ("%.99999999f", (np.float64(0.5),), "0.5" + "0" * (MAX_FIELD_WIDTH - 1)),
        ("%9999999999d|", (np.int32(1),), "%9999999999d|"),  # no int
        ("%*p", (np.int32(-(2**31)), np.int64(1)), "0x1".ljust(MAX_FIELD_WIDTH)),
    ],
)
def test_widths_and_precisions_follow_c_and_are_limited(
    form: str, values: tuple[Any, ...], printed: str
) -> None:
    arguments = b""
    for value in values:
        arguments += bytes(-len(arguments) % value.nbytes) + value.tobytes()

    assert format_printf(form, arguments, str) == printed


def print_from(body: str, threads: int) -> None:
    """Run a kernel of one block that prints."""
    run(
        Launch(
            kernel="k",
            parameters={},
            source=f'extern "C" __global__ void k() {{ {body} }}',
            source_name="k.cu",
            entry="k",
            defines={},
            grid=(1, 1, 1),
            block=(threads, 1, 1),
            dynamic_shared_bytes=0,
            arguments=(),
            flop=None,
            compulsory_bytes=0,
            references={},
            tolerance=0.0,
        ),
        HOPPER,
    )


def test_printed_text_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_from(r'printf("\033]0;pwn\007\033[2J%c%s\tend\n", 27, "\x9b" "1m\xe2\x80\xae\r");', 1)

    assert capsys.readouterr().err == (
        r"\x1b]0;pwn\x07\x1b[2J\x1b" + "\N{REPLACEMENT CHARACTER}" + r"1m\u202e\r" + "\tend\n"
    )


def test_the_output_of_a_launch_is_limited(capsys: pytest.CaptureFixture[str]) -> None:
    print_from(f'printf("{"%4096d" * 40}\\n", {", ".join(["1"] * 40)});', 32)

    *whole, cut, last = capsys.readouterr().err.splitlines(keepends=True)
    assert last == f"(output after {MAX_PRINTED_CHARACTERS} characters is left out)\n"
    assert len(whole) == MAX_PRINTED_CHARACTERS // (40 * 4096 + 1)
    assert len("".join(whole) + cut) - 1 == MAX_PRINTED_CHARACTERS
