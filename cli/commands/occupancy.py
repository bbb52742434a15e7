"""`memlab occupancy`: the resident blocks per SM, their limits and thresholds."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli import options
from memlab.cli.kernel_commands import optional_kernel_app
from memlab.cli.output import print_json
from memlab.cli.picture import check_picture, write_picture
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.properties import DeviceProperties
    from memlab.kernels.user.kernel import UserKernel
    from memlab.roofline.documents.occupancy import OccupancySubject

EXAMPLES = "'memlab occupancy tiled' or 'memlab occupancy --threads 256 --registers 40'"

RESOURCE_OPTIONS = {
    "threads_per_block": ("--threads", "threads per block"),
    "registers_per_thread": ("--registers", "registers per thread"),
    "shared_bytes_per_block": ("--shared", "bytes of shared memory per block"),
}
"""The option and the unit of every field of `memlab.device.occupancy.BlockRequirements`."""

CurvesOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Draw the curves to FILE: .png, .svg or .pdf. Their data goes next to it as .csv.",
    ),
]
HiddenOption = Annotated[int | None, typer.Option(hidden=True)]


def occupancy_of_kernel(
    target: "str | UserKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    device: options.DeviceOption = None,
    as_json: options.JsonOption = False,
    output: CurvesOutputOption = None,
    overwrite: options.PictureOverwriteOption = False,
    quiet: options.QuietOption = False,
    threads: HiddenOption = None,
    registers: HiddenOption = None,
    shared: HiddenOption = None,
) -> None:
    """Compile one kernel for the device and show its occupancy."""
    if (threads, registers, shared) != (None, None, None):
        raise _kernel_and_numbers_error(target if isinstance(target, str) else target.target)
    if output is not None:
        check_picture(output, overwrite=True)  # the report comes before an existing file

    import memlab

    found = memlab.occupancy(target, device=device, **parameters)
    _deliver(found.properties, found.subject, as_json, output, overwrite, quiet)


def occupancy(
    context: typer.Context,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", help="Threads per block.")
    ] = None,
    registers: Annotated[
        int | None,
        typer.Option(
            "--registers",
            metavar="R",
            help="Registers per thread. [default: the most that do not reduce occupancy]",
        ),
    ] = None,
    shared: Annotated[
        int | None,
        typer.Option(
            "--shared", metavar="BYTES", help="Shared memory per block, bytes. [default: 0]"
        ),
    ] = None,
    device: options.DeviceOption = None,
    as_json: options.JsonOption = False,
    output: CurvesOutputOption = None,
    overwrite: options.PictureOverwriteOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Show the limits of the resident blocks per SM, for a kernel or for plain numbers."""
    numbers = (threads, registers, shared)
    if context.invoked_subcommand is not None:
        if numbers != (None, None, None):
            raise _kernel_and_numbers_error(context.invoked_subcommand)
        options.inherit_options(context)
        return
    if numbers == (None, None, None):
        raise UsageError(
            f"there is no kernel and no block size: name a kernel or give numbers: {EXAMPLES}"
        )
    if threads is None:
        raise UsageError(
            "--registers and --shared need the block's size: add --threads, as in --threads 256"
        )
    if output is not None:
        check_picture(output, overwrite=True)  # the report comes before an existing file

    import memlab
    from memlab.device.occupancy import BlockRequirements
    from memlab.device.occupancy_curves import register_budget
    from memlab.roofline.documents.occupancy import OccupancySubject

    properties = memlab.devicequery(device)
    _check_limits(properties, numbers)
    block = BlockRequirements(threads, registers or 1, shared or 0)
    if registers is None:
        most = register_budget(properties, block).registers_per_thread
        block = replace(block, registers_per_thread=most)
    subject = OccupancySubject(block, registers_given=registers is not None)
    _deliver(properties, subject, as_json, output, overwrite, quiet)


occupancy_app = optional_kernel_app(occupancy_of_kernel, occupancy)


def _kernel_and_numbers_error(kernel: str) -> UsageError:
    return UsageError(
        f"{kernel} and numbers were both given: the compiler gives a kernel its registers and "
        "shared memory; leave the numbers out, or the kernel"
    )


def _check_limits(properties: "DeviceProperties", numbers: tuple[int | None, ...]) -> None:
    """Refuse a number that no block on this device can have.

    Raises:
        UsageError: Names the limit, the value and the nearest accepted value.
    """
    from memlab.device.occupancy import resource_limits

    limits = resource_limits(properties)
    for (resource, (least, most)), value in zip(limits.items(), numbers, strict=True):
        if value is not None and not least <= value <= most:
            option, label = RESOURCE_OPTIONS[resource]
            raise UsageError(
                f"{value} {label}; {properties.name} allows {least} to {most}: "
                f"use {option} {min(max(value, least), most)}"
            )


def _deliver(
    properties: "DeviceProperties",
    subject: "OccupancySubject",
    as_json: bool,
    output: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    if as_json:
        from memlab.roofline.documents.occupancy import occupancy_document

        print_json(occupancy_document(properties, subject))
    else:
        from memlab.roofline.reports.occupancy import occupancy_report
        from memlab.roofline.reports.parts import console

        console().print(occupancy_report(properties, subject))
    if output is not None:
        from memlab.device.occupancy_curves import occupancy_curves
        from memlab.roofline.documents.occupancy import curves_csv
        from memlab.roofline.plots.occupancy import draw_occupancy

        curves = occupancy_curves(properties, subject.block)
        figure = draw_occupancy(curves, properties, subject.label)
        write_picture(output, figure, curves_csv(curves), overwrite=overwrite, quiet=quiet)
