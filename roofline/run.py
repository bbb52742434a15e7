"""A run: a measurement placed under the roofline, as it is stored, listed and drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

from memlab.device.measurement import Measurement, Provenance
from memlab.device.outputs import Outputs
from memlab.presentation import Presentable

TRAFFIC_LEVELS = ("requested", "l1", "l2", "dram", "compulsory")
"""The levels where bytes are counted for an arithmetic intensity, from the program to DRAM."""


@dataclass(frozen=True)
class Ceiling:
    """One limit of a device: the bandwidth of a memory level, or the peak of a pipe.

    Attributes:
        key: `dram`, `l2`, `l1` (with shared memory, which has the same port), `fp32`, `fp64`,
            `fp16_fma` and `bf16_fma` (on the CUDA cores), `tf32`, `fp16`, `bf16` and `fp8` (on the
            tensor cores), or `int_alu`, `int_fma` and `int_xu` (integers, by pipe).
        label: The name in pictures and tables, e.g. `DRAM`.
        value: B/s for a memory level, FLOP/s for a pipe, integer operations of threads per second
            (OP/s) for the integers of a pipe.
        kind: `bandwidth`, `compute` or `integer`.
        provenance: The source of the value: `datasheet`, `measured`, `queried`, `analytic`.
    """

    key: str
    label: str
    value: float
    kind: str
    provenance: Provenance


@dataclass(frozen=True)
class Placement:
    """The place of a measurement under the roofline.

    Attributes:
        flop_per_s: FLOPs of the algorithm over the median time, FLOP/s.
        intensity_flop_per_byte: FLOP/B at each of `TRAFFIC_LEVELS`; None where no byte moves.
        bound: The limiting resource, a ceiling's key (`dram`, `l2`, `l1`, `fp32` …), or
            `latency`.
        ceiling: The key of the lowest ceiling over this kernel's intensities; those of integers
            are among them for a kernel without FLOPs.
        ceiling_flop_per_s: That ceiling at this kernel's intensity, FLOP/s.
        fraction_of_ceiling: `flop_per_s` over `ceiling_flop_per_s`; above 1 the measurement is
            invalid.
        busy: Share of the time for which each resource is busy, 0 to 1, by the ceiling's key;
            empty in runs that older versions stored.
        iop_per_s: Integer operations of threads over the median time, OP/s, of all pipes.
    """

    flop_per_s: float
    intensity_flop_per_byte: dict[str, float | None]
    bound: str
    ceiling: str
    ceiling_flop_per_s: float
    fraction_of_ceiling: float
    busy: dict[str, float] = field(default_factory=dict)
    iop_per_s: float = 0.0


@dataclass(frozen=True)
class RunIdentity:
    """What tells a run from others of the same kernel.

    Attributes:
        label: A short name that the user gave, such as `before`; empty for none.
        note: The user's remark; empty for none.
        git_commit: The commit of the repository that holds the kernel's file, 40 hexadecimal
            digits; None for a kernel of the catalog, or where there is no repository.
        git_clean: Whether that repository's tracked files were as in the commit, and the kernel's
            file among them; None without a commit.
        sweep: The name of the sweep that the run belongs to; empty for none.
    """

    label: str = ""
    note: str = ""
    git_commit: str | None = None
    git_clean: bool | None = None
    sweep: str = ""

    @property
    def name(self) -> str:
        """The name by which people know the run: its label, else its sweep's; empty for none."""
        return self.label or self.sweep


@dataclass(frozen=True)
class Recipe:
    """What launches a run again: the arguments of `memlab.run`, but for the device.

    Attributes:
        kernel: The name of a catalog kernel, `FILE.cu:ENTRY`, or a name in `memlab.toml`.
        options: The parameters of a catalog kernel, or the launch options of a user kernel; empty
            for a kernel that is launched as `memlab.toml` says.
        seed: Seed of the random inputs.
    """

    kernel: str
    options: dict[str, bool | int | float | str | tuple[str, ...]] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, repr=False)
class Run(Presentable):
    """A measured launch with its placement and advice.

    Attributes:
        id: The run's number in the store; None before it is stored.
        created_at: The time of the run, ISO 8601 in UTC, to the second.
        memlab_version: The version of memlab that made the run.
        measurement: The counts, the time and the verification of the launch.
        placement: The measurement's place under the roofline.
        advice: One or two sentences of advice that follow from the figures.
        identity: The run's label and note, and the state of the kernel's repository.
        recipe: What launches it again; None where arguments were arrays of a Python program, and
            in runs of older versions.
    """

    id: int | None
    created_at: str
    memlab_version: str
    measurement: Measurement
    placement: Placement
    advice: tuple[str, ...]
    identity: RunIdentity = field(default_factory=RunIdentity)
    recipe: Recipe | None = None

    @property
    def outputs(self) -> Outputs:
        """The arrays that a user kernel wrote, by the names of its parameters.

        An array is as the launch left it: elements that nothing wrote are NaN, or have all bits
        set. Of a sample of the blocks, it is a masked array. Stored runs have no outputs.
        """
        return self.measurement.outputs
