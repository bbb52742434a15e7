"""`memlab devicequery`: the output of CUDA's deviceQuery, and further figures."""

import os
from typing import Annotated

import typer

from memlab.cli import options
from memlab.cli.output import print_json
from memlab.errors import UsageError


def devicequery(
    device: options.DeviceOption = None,
    list_devices: Annotated[bool, typer.Option("--list", help="List all devices.")] = False,
    all_attributes: Annotated[
        bool, typer.Option("--all", help="Add every attribute that a GPU's driver has.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show a device's limits, sizes, clocks and peaks, each with its provenance.

    Where no device is named, each GPU is shown; --json then gives them as a list, `devices`.
    """
    from memlab import querying
    from memlab.device.devices import DEVICE_VARIABLE, is_gpu
    from memlab.roofline.documents.device import device_document, devices_document
    from memlab.roofline.reports import device as reports

    if list_devices and all_attributes:
        raise UsageError("--list and --all do not go together: use --device INDEX for --all")
    if list_devices:
        listed = {name: querying.devicequery(name) for name in querying.available_device_names()}
        if as_json:
            print_json(devices_document(listed))
        else:
            from rich.console import Console

            console = Console()
            console.print(reports.devices_table(listed, console.width))
        return
    devices = querying.properties_by_device(device)
    wanted = as_json or all_attributes
    attributes = {key: querying.device_attributes(key) if wanted else {} for key in devices}
    if as_json and len(devices) == 1:
        ((key, properties),) = devices.items()
        print_json(device_document(properties, attributes[key]))
    elif as_json:
        print_json(devices_document(devices, attributes))
    else:
        is_fallback = device is None and not os.environ.get(DEVICE_VARIABLE)
        for key, properties in devices.items():
            if not is_gpu(key):
                print(reports.datasheet_line(properties, is_fallback), end="\n\n")
        print("\n".join(reports.device_query_lines(devices)))
        for key, properties in devices.items():
            name = f" of {key}" if len(devices) > 1 else ""
            print("\n".join(("", *reports.memory_lab_lines(properties, name))))
            if all_attributes:
                print("\n".join(("", *reports.attribute_lines(attributes[key], name))))
