"""The emulated device. The emulator is imported with its first launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.device.measurement import DeviceKind, Measurement, Progress
from memlab.device.properties import DeviceProperties
from memlab.kernels.launch import Launch

if TYPE_CHECKING:
    from memlab.device.budget import Budget


class EmulatedDevice:
    """A GPU that is known by its datasheet only.

    Attributes:
        properties: The properties from the datasheet.
        key: The datasheet's name.
    """

    kind: DeviceKind = "emulated"

    def __init__(
        self, key: str, properties: DeviceProperties, budget: Budget | None = None
    ) -> None:
        self.key, self.properties = key, properties
        self._budget = budget

    def run(
        self,
        launch: Launch,
        seed: int,
        progress: Progress | None = None,
        *,
        keep_outputs: bool = False,
    ) -> Measurement:
        """Compile, execute, verify and count a launch, and model its time.

        Arguments and errors are those of `emulation.device.measure`.
        """
        from memlab.device.emulation.device import measure

        return measure(
            launch,
            self.properties,
            self.key,
            seed,
            progress,
            self._budget,
            keep_outputs=keep_outputs,
        )
