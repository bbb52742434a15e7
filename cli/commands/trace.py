"""`memlab trace KERNEL`: what one thread touches, step by step, in the program's own names."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli import options
from memlab.cli.kernel_commands import kernel_app
from memlab.cli.output import print_json
from memlab.cli.picture import check_picture, write_picture
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.kernels.launch import Dim3
    from memlab.kernels.user.kernel import UserKernel

BlockIndexOption = Annotated[
    str,
    typer.Option(
        "--block", "--block-index", metavar="X,Y[,Z]", help="blockIdx of the thread's block."
    ),
]
ThreadIndexOption = Annotated[
    str,
    typer.Option(
        "--thread",
        "--thread-index",
        metavar="X,Y[,Z]",
        help="threadIdx of the thread in its block.",
    ),
]
TraceOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        "--output",
        "-o",
        metavar="FILE",
        help="Draw the elements to FILE: .png, .svg or .pdf. Their data goes beside it as .csv.",
    ),
]


def trace_kernel(
    target: "str | UserKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    block_index: BlockIndexOption = "0,0",
    thread: ThreadIndexOption = "0,0",
    plot: TraceOutputOption = None,
    device: options.DeviceOption = None,
    seed: options.SeedOption = 0,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
    as_json: options.JsonOption = False,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Follow one thread of one kernel and show its way."""
    # Of one's own kernel, --block is the launch's.
    block_option = "--block" if isinstance(target, str) else "--block-index"
    followed_block, thread_index = (
        _parse_index(block_option, block_index),
        _parse_index("--thread", thread),
    )
    if plot is not None:
        check_picture(plot, force, "--plot")

    import memlab
    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        found = memlab.trace(
            target,
            block_index=followed_block,
            thread_index=thread_index,
            device=device,
            seed=seed,
            timeout_s=timeout,
            memory_bytes=memory_limit,
            progress=progress,
            **parameters,
        )
    if as_json:
        from memlab.roofline.documents.trace import trace_document

        print_json(trace_document(found))
    else:
        from memlab.roofline.reports.parts import console
        from memlab.roofline.reports.trace import trace_report

        console().print(trace_report(found))
    if plot is not None:
        from memlab.roofline.plots.trace import draw_trace, elements_csv

        figure, data = draw_trace(found), elements_csv(found)
        write_picture(plot, figure, data, force=force, quiet=quiet, option="--plot")


def _parse_index(option: str, text: str) -> "Dim3":
    """Read `x`, `x,y` or `x,y,z`; what is left out is 0.

    Raises:
        UsageError: It is no such thing.
    """
    try:
        given = [int(part) for part in text.split(",")]
    except ValueError:
        given = []
    if not 1 <= len(given) <= 3:
        raise UsageError(
            f"{option} takes whole numbers x,y or x,y,z, got {text!r}: use {option} 0,1"
        )
    x, y, z = [*given, 0, 0][:3]
    return x, y, z


trace_app = kernel_app(
    trace_kernel,
    "memlab trace naive --width 4 --tile 2 --block 0,1 --thread 1,1",
    "Follow one thread: what it reads, stages and multiplies.",
)
