"""`memlab trace KERNEL`: the elements that one thread reads and writes, step by step."""

import re
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

INDEX = "X,Y[,Z]"
BLOCK_HELP = "blockIdx of the thread's block."
THREAD_HELP = "threadIdx of the thread in its block."
PLOT_HELP = "Draw the elements to FILE: .png, .svg or .pdf. Their data goes next to it as .csv."

BlockIndexOption = Annotated[
    str, typer.Option("--block", "--block-index", metavar=INDEX, help=BLOCK_HELP)
]
ThreadIndexOption = Annotated[
    str, typer.Option("--thread", "--thread-index", metavar=INDEX, help=THREAD_HELP)
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", "--output", "-o", metavar="FILE", help=PLOT_HELP)
]


def trace_kernel(
    target: "str | UserKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    block_index: BlockIndexOption = "0,0",
    thread: ThreadIndexOption = "0,0",
    plot: PlotOption = None,
    device: options.DeviceOption = None,
    seed: options.SeedOption = 0,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
    as_json: options.JsonOption = False,
    overwrite: options.PictureOverwriteOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Follow one thread of a kernel and show its steps."""
    # With a user kernel, --block is the size of the launch's blocks.
    block = _parse_index("--block" if isinstance(target, str) else "--block-index", block_index)
    index = _parse_index("--thread", thread)
    if plot is not None:
        # The report comes before an existing file.
        check_picture(plot, overwrite=True, option="--plot")

    import memlab
    from memlab.cli.progress import progress_bar

    with progress_bar(quiet) as progress:
        trace = memlab.trace(
            target,
            block_index=block,
            thread_index=index,
            device=device,
            seed=seed,
            timeout_s=timeout,
            memory_bytes=memory_limit,
            progress=progress,
            **parameters,
        )
    if as_json:
        from memlab.roofline.documents.trace import trace_document

        print_json(trace_document(trace))
    else:
        from memlab.roofline.reports.parts import console
        from memlab.roofline.reports.trace import trace_report

        console().print(trace_report(trace))
    if plot is not None:
        from memlab.roofline.plots.trace import draw_trace, elements_csv

        figure, data = draw_trace(trace), elements_csv(trace)
        write_picture(plot, figure, data, overwrite=overwrite, quiet=quiet, option="--plot")


def _parse_index(option: str, text: str) -> "Dim3":
    """Read `x`, `x,y` or `x,y,z`; missing numbers are 0.

    Raises:
        UsageError: The text has another form.
    """
    if not re.fullmatch(r"\s*-?\d+\s*(,\s*-?\d+\s*){0,2}", text):
        raise UsageError(
            f"{option} takes whole numbers x,y or x,y,z, got {text!r}: use {option} 0,1"
        )
    x, y, z = [*(int(number) for number in text.split(",")), 0, 0][:3]
    return x, y, z


trace_app = kernel_app(
    trace_kernel,
    "memlab trace naive --width 4 --tile 2 --block 0,1 --thread 1,1",
    "Follow one thread: what it reads, stages and multiplies.",
)
