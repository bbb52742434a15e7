"""Reading the output of Compute Sanitizer, for all four tools of releases 2021 to 2026."""

import re
import struct
import subprocess
from dataclasses import replace

import pytest
from paths import DATA

from memlab.device.checking.findings import SourceLocation
from memlab.device.nvidia_tools import sanitizer
from memlab.device.nvidia_tools.sanitizer_output import parse_log, sanitizer_errors
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch

SOURCE = (DATA / "planted/past_the_end.cu").read_text()
LINES = SOURCE.splitlines()
TEXTS = dict(
    re.findall(
        r"^\[(\w+)\]\n(.*?)\n(?=\n\[|\Z)", (DATA / "compute-sanitizer.txt").read_text(), re.S | re.M
    )
)


@pytest.fixture
def launch() -> Launch:
    tiled = find_kernel("tiled").prepare({"width": 64, "tile": 16}, Limits("NVIDIA H200"))
    return replace(tiled, source=SOURCE, source_name="some/folder/past_the_end.cu")


def marked(text: str) -> str:
    """Add the prefix that Compute Sanitizer prints before every line."""
    return "".join(f"========= {line}".rstrip(" ") + "\n" for line in text.strip("\n").split("\n"))


def at(line: int, block=None, thread=None) -> SourceLocation:
    return SourceLocation(line, LINES[line - 1].strip() if line else "", block, thread)


MEMORY = {
    # Without line information; a template with demangled names.
    "2021.1": (
        """
Invalid __global__ read of size 8 bytes
    at 0x3b0 in void rotate<unsigned long,Degree<int=2048>,(int)1>(unsigned long*,double2*)
    by thread (251,0,0) in block (0,0,0)
    Address 0x964000008 is out of bounds
    Saved host backtrace up to driver entry point at kernel launch time
    Host Frame:cuLaunchKernel [0x222e52]
               in /usr/lib64/libcuda.so.1
""",
        ("out of bounds", "global", at(0, (0, 0, 0), (251, 0, 0))),
    ),
    # The function follows the line.
    "2021.2": (
        """
Invalid __global__ write of size 4 bytes
    at 0x30 in /home/a user/past_the_end.cu:9:_Z10differencePKfPfi
    by thread (0,0,0) in block (0,0,0)
    Address 0x15551a800001 is misaligned
""",
        ("misaligned", "global", at(9, (0, 0, 0), (0, 0, 0))),
    ),
    # In a header, three calls deep; the file comes first in a frame.
    "2021.3": (
        """
Invalid __global__ atomic of size 4 bytes
    at 0x270 in /usr/local/cuda-11.5/include/cooperative_groups/details/sync.h:81:_ZN4add_EPVjj
    by thread (0,0,0) in block (0,0,0)
    Address 0x7fcccea00204 is out of bounds
    and is 5 bytes after the nearest allocation at 0x7fcccea00000 of size 512 bytes
    Device Frame:/usr/local/cuda-11.5/include/cooperative_groups.h:331:_ZNK4grid4syncEv [0x50]
    Device Frame:/nfs/past_the_end.cu:7:_Z10differencePKfPfi [0x10]
    Saved host backtrace up to driver entry point at kernel launch time
    Host Frame: [0x20d6aa]
               in /usr/lib64/libcuda.so.1
""",
        ("out of bounds", "global", at(7, (0, 0, 0), (0, 0, 0))),
    ),
    "2022.1": (
        """
Invalid __local__ write of size 4 bytes
    at difference():0x160 in past_the_end.cu:8
    by thread (3,2,1) in block (0,0,0)
    Address 0xfffa94 is misaligned
""",
        ("misaligned", "local", at(8, (0, 0, 0), (3, 2, 1))),
    ),
    # It does not know which memory a wgmma accesses.
    "2023.2": (
        """
Invalid __shared__ ? of size 2048 bytes
    at 0x2570 in /root/past_the_end.cu:9:_Z10differencePKfPfi
    by thread (224,0,0) in block (4,0,0)
    Address 0x1bc20 is out of bounds
""",
        ("out of bounds", "shared", at(9, (4, 0, 0), (224, 0, 0))),
    ),
    "2024.1": (
        """
Invalid __shared__ read of size 16 bytes
    at __half cub::Reduce<__half, (int)256>::Apply<(bool)1>(T2, int)+0x6320 in /a/cub/reduce.cuh:118
    by thread (0,0,0) in block (0,0,0)
    Address 0x8 is misaligned
    Device Frame:void difference<(int)4>(T1 *)+0xc0 in /home/someone/past_the_end.cu:7
    Saved host backtrace up to driver entry point at kernel launch time
    Host Frame:main in /home/someone/past_the_end.cu:10 [0xab50]
               in /home/someone/a.out
""",
        ("misaligned", "shared", at(7, (0, 0, 0), (0, 0, 0))),
    ),
    # A kernel's name is not a reason.
    "2025.2": (
        """
Invalid __global__ read of size 4 bytes
    at _Z15misaligned_copyPKfPfi+0x490 in past_the_end.cu:9
    by thread (1,0,0) in block (2,0,0)
    Access at 0x7f71b9e01360 is out of bounds
    and is 1 bytes after the nearest allocation at 0x7f71b9e00a00 of size 2,400 bytes
        Device Frame: _Z10misaligned+0x20 in past_the_end.cu:10
""",
        ("out of bounds", "global", at(9, (2, 0, 0), (1, 0, 0))),
    ),
    "2025.3": (
        """
Invalid __global__ write of size 16 bytes
    at _Z6helperPf+0x190 in helpers.cuh:6
    by thread (231,0,0) in block (3,0,0)
    Access to 0x7f6510c00fa0 is out of bounds
    and is inside the nearest allocation at 0x7f6510c00000 of size 4000000 bytes
        Device Frame: _Z3addIfEvPT_+0x190 in past_the_end.cu:8
        Device Frame: _Z10differencePKfPfi+0x190 in past_the_end.cu:10
    Saved host backtrace up to driver entry point at kernel launch time
        Host Frame: cuLaunchKernel [0x90] in python3.12
""",
        ("out of bounds", "global", at(8, (3, 0, 0), (231, 0, 0))),
    ),
    "2025.3, a cluster": (
        """
Invalid __remote_shared__ read of size 4 bytes
    at _Z10differencePKfPfi+0x190 in past_the_end.cu:9
    by thread (1,0,0) in block (3,0,0)
    Access to 0x400 in CTA 1 is out of bounds
""",
        ("out of bounds", "remote_shared", at(9, (3, 0, 0), (1, 0, 0))),
    ),
    "2025.3, another reason": (
        """
Invalid __global__ system-scoped atomic of size 4 bytes
    at _Z10differencePKfPfi+0x190 in past_the_end.cu:9
    by thread (1,0,0) in block (3,0,0)
    Access to 0x7f6510c00fa0 is not writable
""",
        ("not writable", "global", at(9, (3, 0, 0), (1, 0, 0))),
    ),
    "2026.3": (
        """
Invalid __global__ tensor load
    at _Z10differencePKfPfi+0x190 in past_the_end.cu:9
    by thread (0,0,0) in block (3,0,0)
    Invalid parameter passed to TMA tensor operation
""",
        ("invalid parameter passed to TMA tensor operation", "global", at(9, (3, 0, 0), (0, 0, 0))),
    ),
    "a fault that the hardware reports": (
        "Out-of-range shared or local address",
        ("out of bounds", "", at(0)),
    ),
    "a trap": (
        """
Trace/breakpoint trap
    at _Z10differencePKfPfi+0x190 in past_the_end.cu:9
    by thread (5,0,0) in block (3,0,0)
""",
        ("trap", "", at(9, (3, 0, 0), (5, 0, 0))),
    ),
    "the heap": (
        """
Malloc/Free Error encountered : Device-side double free
    at _Z10differencePKfPfi+0x190 in past_the_end.cu:9
    by thread (5,0,0) in block (3,0,0)
    Address 0x400aff920
""",
        ("device-side double free", "", at(9, (3, 0, 0), (5, 0, 0))),
    ),
}


@pytest.mark.parametrize(("text", "expected"), MEMORY.values(), ids=MEMORY)
def test_memcheck_of_every_release_is_read(launch, text, expected) -> None:
    (found,), notes = parse_log(marked(text), "memcheck", launch)

    assert (found.kind, found.space, found.at) == expected
    assert not notes


RACES = {
    "2021.3": (
        """
WARNING: Race reported between Write access at 0x278 in /home/a/past_the_end.cu:7:_Z1fPf
    and Read access at 0x298 in /home/a/past_the_end.cu:9:_Z1fPf [6144 hazards]
""",
        [("RAW or WAR", 7, 9, 6144)],
    ),
    "2023.1, no lines": (
        """
Error: Race reported between Write access at _Z1fPf+0x140
    and Read access at _Z1fPf+0xe0 [4 hazards]
    and Write access at _Z1fPf+0x140 [5 hazards]
""",
        [("RAW or WAR", 0, 0, 4), ("WAW", 0, 0, 5)],
    ),
    # An atomic reads and writes.
    "2025.3": (
        """
Warning: Race reported between Atomic access at _Z1fPf+0x90 in past_the_end.cu:7
    and Read access at _Z1fPf+0x100 in past_the_end.cu:9 [1 hazards]
    and Write access at _Z1fPf+0x190 in past_the_end.cu:8 [123456 hazards]

Error: Race reported between Write access at _ZN6nvcuda4wmma5storeEPf+0x50 in mma.hpp:546
    and Atomic access at _Z1fPf+0x90 in past_the_end.cu:8 [508 hazards]
""",
        [("WAW", 0, 8, 508), ("RAW or WAR", 7, 9, 1), ("WAW", 7, 8, 123456)],
    ),
}


@pytest.mark.parametrize(("text", "expected"), RACES.values(), ids=RACES)
def test_races_of_every_release_are_read(launch, text, expected) -> None:
    found, notes = parse_log(marked(text), "racecheck", launch)

    assert not notes
    races = [
        (finding.kind, finding.at.line, finding.other.line, finding.count) for finding in found
    ]
    assert races == expected
    assert {finding.space for finding in found} == {"shared"}


HAZARDS = {
    "2021.3": (
        """
WARN:(Warp Level Programming) Potential WAR hazard detected at __shared__ 0x3 in block (0, 0, 0) :
    Read Thread (31, 0, 0) at 0x00000170 in ./past_the_end.cu:7:f(int*, int*)
    Write Thread (1, 0, 0) at 0x000001a8 in ./past_the_end.cu:9:f(int*, int*)
    Current Value : 0, Incoming Value : 0
""",
        ("WAR", "shared", at(7, (0, 0, 0), (31, 0, 0)), at(9, (0, 0, 0), (1, 0, 0))),
    ),
    "2025.3": (
        """
Error: Potential RAW hazard detected (CUDA barrier operation) at __shared__ 0x8c in block (2,0,0) :
    Write Thread (35,0,0) (block rank 0) at _Z1fPf+0x90 in past_the_end.cu:7
    Read Thread (32,0,0) (block rank 1) at _Z1fPf+0x190 in past_the_end.cu:9
    Current Value : 3
""",
        ("RAW", "shared", at(7, (2, 0, 0), (35, 0, 0)), at(9, (2, 0, 0), (32, 0, 0))),
    ),
    "2026.3": (
        """
Error: Potential RAW hazard detected at global address 0x7f00
    Strong Read (device scope, 4 byte access) Thread (2,0,0) in Block (3,0,0) at _Z1gPf+0x9 in h.h:1
        Device Frame: _Z1fPf+0x190 in past_the_end.cu:9
    Strong Write (device scope, 4 byte access) Thread (1,0,0) in Block (0,0,0) at _Z1gPf+9 in h.h:1
        Device Frame: _Z1fPf+0x190 in past_the_end.cu:8
""",
        ("RAW", "global", at(9, (3, 0, 0), (2, 0, 0)), at(8, (0, 0, 0), (1, 0, 0))),
    ),
}


@pytest.mark.parametrize(("text", "expected"), HAZARDS.values(), ids=HAZARDS)
def test_single_hazards_are_read(launch, text, expected) -> None:
    (found,), notes = parse_log(marked(text), "racecheck", launch)

    assert (found.kind, found.space, found.at, found.other) == expected
    assert not notes


OTHERS = {
    "initcheck 2021.2": (
        """
Uninitialized __global__ memory read of size 1 bytes
    at 0x150 in void count_set_bits_kernel<int=256>(unsigned int const *,int,int,int*)
    by thread (0,0,0) in block (1,0,0)
    Address 0x7fc406200400
""",
        ("uninitialized read", "global", at(0, (1, 0, 0), (0, 0, 0))),
    ),
    "initcheck 2023.2": (
        """
Uninitialized __global__ memory read of size 4 bytes
    at 0xa0a50 in /usr/local/cuda/include/cub/thread/thread_load.cuh:272:_Z10ThreadLoadPKj
    by thread (30,0,0) in block (1,0,0)
    Address 0x7f65e5204710
    Device Frame:/usr/local/cuda/include/cub/thread/thread_load.cuh:119:_Z4LoadPKj [0xa0a40]
    Device Frame:/home/a/past_the_end.cu:9:_Z10differencePKfPfi [0x30]
""",
        ("uninitialized read", "global", at(9, (1, 0, 0), (30, 0, 0))),
    ),
    "initcheck 2026.3": (
        """
Uninitialized __shared__ memory read of size 4 bytes
    at _Z10differencePKfPfi+0x190 in past_the_end.cu:7
    by thread (31,0,0) in block (1,0,0)
    Address 0x0
        Device Frame: _Z1fPf+0x190 in past_the_end.cu:8
""",
        ("uninitialized read", "shared", at(7, (1, 0, 0), (31, 0, 0))),
    ),
    "synccheck 2022.1": (
        """
Barrier error detected. Divergent thread(s) in block
    at 0x8f0 in /home/a/past_the_end.cu:9:_Z10differencePKfPfi
    by thread (63,0,0) in block (0,0,0)
    Device Frame:/home/a/past_the_end.cu:9:_Z10differencePKfPfi [0x8f0]
""",
        ("divergent barrier", "", at(9, (0, 0, 0), (63, 0, 0))),
    ),
    # The compiler has moved the barrier into a separate function.
    "synccheck 2024.3": (
        """
Barrier error detected. Divergent thread(s) in warp.
    at [clone f(int *, int *)] outlineSync()+0x11f0 in sync.h:42
    by thread (32,0,0) in block (0,0,0)
        Device Frame: f(int *, int *)+0xe40 in past_the_end.cu:8
""",
        ("divergent barrier", "", at(8, (0, 0, 0), (32, 0, 0))),
    ),
    "synccheck 2025.3": (
        """
Barrier error detected. Missing wait.
    at _Z10differencePKfPfi+0xbb10 in past_the_end.cu:9
    by thread (128,0,0) in block (0,0,0)
    Barrier is located at shared address 0x30408
""",
        ("missing wait", "", at(9, (0, 0, 0), (128, 0, 0))),
    ),
    "synccheck 2025.3, wgmma": (
        """
Warpgroup MMA sequence error detected. Mismatching warpgroup instruction pc between warps.
    at _Z10differencePKfPfi+0xbb10 in past_the_end.cu:9
    by thread (32,0,0) in block (0,0,0)
""",
        (
            "mismatching warpgroup instruction pc between warps",
            "",
            at(9, (0, 0, 0), (32, 0, 0)),
        ),
    ),
    "racecheck 2025.3, a cluster": (
        """
Potential invalid __shared__ read of size 4 bytes
    at _Z10differencePKfPfi+0x170 in past_the_end.cu:9
    by thread (0,0,0) in block (0,0,0)
    Address 0x1000400 is located in a block that might have already exited
""",
        (
            "located in a block that might have already exited",
            "shared",
            at(9, (0, 0, 0), (0, 0, 0)),
        ),
    ),
}


@pytest.mark.parametrize(
    ("tool", "text", "expected"),
    [(name.split()[0], *case) for name, case in OTHERS.items()],
    ids=OTHERS,
)
def test_the_other_tools_are_read(launch, tool, text, expected) -> None:
    (found,), notes = parse_log(marked(text), tool, launch)

    assert (found.tool, found.kind, found.space, found.at) == (tool, *expected)
    assert not notes


def test_one_mistake_of_many_threads_is_one_finding(launch) -> None:
    by = (
        "Invalid __global__ write of size 4 bytes\n"
        "    at _Z1fPf+0x190 in past_the_end.cu:9\n"
        "    by thread ({},0,0) in block ({},0,0)\n"
        "    Access to 0x7f6510c00fa0 is out of bounds\n"
        "\n"
    )
    text = "".join(by.format(thread, block) for block in (3, 2) for thread in (9, 8, 7))
    host = "Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) on CUDA API call to cuCtxSynchronize."

    (found,), notes = parse_log(
        marked(f"COMPUTE-SANITIZER\n{text}{host}\n\nERROR SUMMARY: 7 errors"), "memcheck", launch
    )

    assert (found.at, found.count) == (at(9, (2, 0, 0), (7, 0, 0)), 6)
    assert notes == [f"memcheck: {host}"]


WHOLE = {
    "memcheck": [("misaligned", 8, 1), ("out of bounds", 9, 2)],
    "racecheck": [("RAW or WAR", 7, 508), ("WAW", 7, 4)],
    "initcheck": [("uninitialized read", 0, 1), ("uninitialized read", 7, 1)],
    "synccheck": [("divergent barrier", 8, 1), ("invalid mask", 9, 1)],
    "nothing": [],
}


@pytest.mark.parametrize(("tool", "expected"), WHOLE.items(), ids=WHOLE)
def test_a_whole_log_is_read(launch, tool, expected) -> None:
    found, notes = parse_log(TEXTS[tool], tool, launch)

    assert [(finding.kind, finding.at.line, finding.count) for finding in found] == expected
    assert len(notes) == (tool == "memcheck")  # the call that failed after the fault


def test_the_first_thread_is_that_of_cudas_order(launch) -> None:
    by = (
        "Invalid __global__ write of size 4 bytes\n"
        "    at _Z1fPf+0x190 in past_the_end.cu:{}\n"
        "    by thread {} in block {}\n"
        "    Access to 0x7f6510c00fa0 is out of bounds\n"
        "\n"
    )
    threads = ("(0,1,0)", "(0,0,1)"), ("(9,0,0)", "(0,0,1)"), ("(0,0,0)", "(1,0,1)")
    text = "".join(by.format(len(LINES), *thread) for thread in threads)

    # Neither a line without the prefix of the log nor a blank line is a message.
    before = "output\n=========     \n=========     at 0x10\n"
    (found,), notes = parse_log(before + marked(text), "memcheck", launch)

    assert (found.at, found.count) == (at(len(LINES), (0, 0, 1), (9, 0, 0)), 3)
    assert notes == ["memcheck: at 0x10"]


@pytest.mark.parametrize("lost", ["were not printed. Use --print-limit", "were skipped (overflow)"])
def test_what_was_not_printed_is_said(launch, lost) -> None:
    text = f"ERROR SUMMARY: 19 errors\nERROR SUMMARY: 9 errors {lost}"

    assert parse_log(marked(text), "memcheck", launch) == (
        [],
        [f"memcheck: ERROR SUMMARY: 9 errors {lost}"],
    )


@pytest.mark.parametrize(
    "text",
    [
        "Leaked 1,024 bytes at 0x7879c0800000\n    Saved host backtrace up to driver entry point",
        " Unused memory in allocation 0x7f00 of size 10000 bytes\n    Not written 8000 bytes",
        "Host API memory access error at host access to 0x7f00 of size 400 bytes\n"
        "    Uninitialized access to 0x7f10 on access by cudaMemcpy source",
        "Warning: Detected overflow of tracked cuda::barrier structures.",
        "Target application returned an error",
    ],
)
def test_what_is_no_mistake_of_the_kernel_is_a_note(launch, text) -> None:
    found, (note,) = parse_log(marked(text), "memcheck", launch)

    assert not found
    assert note == f"memcheck: {text.splitlines()[0].strip()}"
    assert not sanitizer_errors(marked(text))


def test_its_own_errors_are_told_from_what_it_finds() -> None:
    text = """
COMPUTE-SANITIZER
Error: Device not supported. Please refer to the documentation

Internal Sanitizer Error: The Sanitizer didn't track the launch. Errors might go undetected.

Error: Race reported between Write access at _Z1fPf+0x90 in past_the_end.cu:7
    and Read access at _Z1fPf+0x100 in past_the_end.cu:9 [1 hazards]

Error: (Identical data being written) Potential WAW hazard detected at __shared__ 0x8c

Malloc/Free Error encountered : Device-side double free
Internal Sanitizer Warning: something
ERROR SUMMARY: 5 errors
"""

    assert sanitizer_errors(marked(text)) == [
        "Device not supported. Please refer to the documentation",
        "Internal Sanitizer Error: The Sanitizer didn't track the launch. "
        "Errors might go undetected.",
    ]


# --- Against the sanitizer's printer -----------------------------------------------------------


def encoded(fields: dict[int, object]) -> bytes:
    """Encode a message of protocol buffers: numbers, texts and messages by field number."""
    out = b""
    for number, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, int):
                out += varint(number << 3) + varint(item)
            else:
                inner = encoded(item) if isinstance(item, dict) else str(item).encode()
                out += varint(number << 3 | 2) + varint(len(inner)) + inner
    return out


def varint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    return bytes([value & 127 | 128]) + varint(value >> 7)


def saved(records: list[dict[int, object]], strings: list[str]) -> bytes:
    """The file that `--save` writes: a header and a block of records."""

    def sized(message: bytes) -> bytes:
        return struct.pack("<I", len(message)) + message

    payload = b"".join(sized(encoded(record)) for record in records)
    block = {1: len(payload), 2: {1: strings}, 3: len(records)}
    return b"NVMR" + sized(encoded({1: 2})) + sized(encoded(block)) + payload


def test_an_installed_release_prints_what_is_read(launch, tmp_path) -> None:
    """`--read` prints a saved record like a run, without a GPU."""
    program = sanitizer.find_sanitizer()
    if program is None:
        pytest.skip("Compute Sanitizer is not installed")

    def frame(function: int, file: int, line: int) -> dict[int, object]:
        return {1: 0x190, 2: function, 3: file, 4: line, 6: 0x100}

    def index(x: int) -> dict[int, object]:
        return {1: x, 2: 0, 3: 0}

    strings = ["", "_Z10misalignedPf", "/a/past_the_end.cu", "_Z6helperPf", "/a/helpers.cuh"]
    own, helper = frame(1, 2, 9), frame(3, 4, 6)
    where = {1: 0x7F00FA0, 2: helper, 3: index(3), 4: index(7), 5: [frame(1, 2, 8), own]}
    memory = {1: 30, 2: 1, 3: {1: where, 2: 4, 3: 1, 4: 1, 5: 5, 6: 0x7F00000, 7: 4000}}
    read = {1: 30, 2: 7, 9: {1: 0, 2: own, 3: 4, 4: 1, 5: index(1), 6: index(31), 7: 1}}
    barrier = {1: 30, 2: 9, 11: {1: 2, 3: own, 4: index(0), 5: index(32)}}
    write = {1: 1, 2: frame(1, 2, 7), 3: 9}
    races = {1: 30, 2: 11, 13: {1: 2, 2: write, 3: [{1: 0, 2: own, 3: 508}, {1: 2, 2: own, 3: 4}]}}
    (tmp_path / "saved").write_bytes(saved([memory, read, barrier, races], strings))
    words = [program, "--read", tmp_path / "saved", "--demangle", "no"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)

    found, notes = parse_log(done.stdout, "racecheck", launch)

    assert [(finding.kind, finding.space, finding.at, finding.count) for finding in found] == [
        ("RAW or WAR", "shared", at(7), 508),
        ("WAW", "shared", at(7), 4),
        ("out of bounds", "global", at(8, (3, 0, 0), (7, 0, 0)), 1),
        ("divergent barrier", "", at(9, (0, 0, 0), (32, 0, 0)), 1),
        ("uninitialized read", "global", at(9, (1, 0, 0), (31, 0, 0)), 1),
    ]
    assert not notes
