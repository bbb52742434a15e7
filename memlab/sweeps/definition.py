"""What a sweep varies and how: read from the caller's arguments, kept as JSON, made into jobs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels import catalog
from memlab.kernels.python.front_ends import front_end, swept_options, with_own_options
from memlab.kernels.user import expressions, symbols
from memlab.kernels.user.kernel import UserKernel, apply_launch_options, is_object
from memlab.kernels.user.project import find_user_kernel
from memlab.roofline.sweep.space import MAX_POINTS, Axis, Space, Value, axis_values, make_space
from memlab.sweeps.points import PointJob, RunOptions, source_hash
from memlab.text import plural

if TYPE_CHECKING:
    from memlab.launching import KernelName

SWEPT_OPTIONS = {"symbols": "symbol", "defines": "macro"}
"""The launch options whose values may be lists, and what they name."""


@dataclass(frozen=True)
class SweepDefinition:
    """A sweep before it is run.

    Attributes:
        kernels: Kernels of the catalog by name, or user kernels.
        space: The axes: `kernel`, `device`, then what the caller varies.
        restrict: The conditions that the parameters of catalog kernels must meet; those of user
            kernels are in their records.
        options: The options of every run.
        objective: The name of the figure that ranks the points.
        strategy: See `roofline.sweep.strategies`.
        budget: The most points to run; None for all.
        folder: The folder to which paths are relative.
    """

    kernels: tuple[str | UserKernel, ...]
    space: Space
    restrict: tuple[str, ...]
    options: RunOptions
    objective: str
    strategy: str
    budget: int | None
    folder: str

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices, as `--device` takes them; an empty text is the default device."""
        return next(
            tuple(map(str, axis.values)) for axis in self.space.axes if axis.kind == "device"
        )

    def admits(self, number: int) -> bool:
        """Whether a point may be run: it meets the restrictions, and no other point is the same.

        A kernel without a parameter is run at that axis's first value only, and a restriction
        that names it does not concern the kernel.

        Raises:
            UsageError: A restriction of a catalog kernel is none, or names what is no number.
        """
        kernel = self._kernel(number)
        if isinstance(kernel, UserKernel):
            try:
                return not symbols.broken_restriction(self._user_kernel(kernel, number))
            except UsageError:
                return True  # the point says why it is impossible
        known = {parameter.name: parameter.default for parameter in _parameters(kernel)}
        places = self.space.place(number)
        for axis, place in zip(self.space.axes, places, strict=True):
            if axis.kind == "parameter" and axis.name not in known and place:
                return False
        known.update(self._parameters(kernel, number))
        return all(self._holds(condition, known) for condition in self.restrict)

    def check(self) -> None:
        """Refuse a sweep of which no point can be run, before anything is run or stored.

        Raises:
            UsageError: A kernel's file cannot be read; a restriction is none, or names an unknown
                parameter; the restrictions exclude all points; or an expression can be computed
                at none.
        """
        for place, kernel in enumerate(self.kernels):
            source_hash(kernel)
            self.admits(place * (self.space.size // len(self.kernels)))
        impossible: UsageError | None = None
        for number in range(min(self.space.size, MAX_POINTS)):
            if self.admits(number):
                try:
                    self.job(number)
                    return
                except UsageError as error:
                    impossible = impossible or error
        if impossible is not None:
            raise impossible
        if self.space.size <= MAX_POINTS:
            own = (kernel for kernel in self.kernels if isinstance(kernel, UserKernel))
            conditions = [*self.restrict, *(text for kernel in own for text in kernel.restrict)]
            named = " and ".join(map(repr, dict.fromkeys(conditions)))
            what = plural(len(conditions), "restriction")
            raise UsageError(
                f"no point of {self.space.size:,} meets the {what} {named}: change the values, or "
                "what restricts them"
            )

    def values(self, number: int) -> dict[str, Value]:
        """The values of the axes at a point, without parameters that its kernel lacks."""
        kernel = self._kernel(number)
        values = self.space.values(number)
        if isinstance(kernel, UserKernel):
            return values
        has = {parameter.name for parameter in _parameters(kernel)} | {"kernel", "device"}
        return {name: value for name, value in values.items() if name in has}

    def job(self, number: int) -> PointJob:
        """Make the job of a point.

        Raises:
            UsageError: The point is impossible: an expression cannot be computed.
        """
        kernel = self._kernel(number)
        device = str(self.space.values(number)["device"]) or None
        if isinstance(kernel, str):
            return PointJob(number, kernel, self._parameters(kernel, number), device, self.options)
        made = symbols.evaluated(self._user_kernel(kernel, number))
        return PointJob(
            number, made, {}, device, self.options, source_hash(made), folder=self.folder
        )

    def document(self) -> dict[str, Any]:
        """Give the definition as a JSON document.

        Raises:
            UsageError: Arrays or functions in memory belong to it.
        """
        return {
            "kernels": [
                kernel if isinstance(kernel, str) else _user_kernel_document(kernel)
                for kernel in self.kernels
            ],
            "axes": [[axis.name, axis.kind, list(axis.values)] for axis in self.space.axes],
            "restrict": list(self.restrict),
            "options": asdict(self.options),
            "objective": self.objective,
            "strategy": self.strategy,
            "budget": self.budget,
            "folder": self.folder,
        }

    def _holds(self, condition: str, values: Mapping[str, Value | None]) -> bool:
        """Decide a condition for a catalog kernel with these parameters.

        Raises:
            UsageError: It is none, or names what is no number.
        """
        numbers = {name: value for name, value in values.items() if isinstance(value, int)}
        for name in expressions.names_in(condition):
            if name in numbers:
                continue
            if name in values:
                why = "whose default the device decides" if values[name] is None else "a word"
                raise UsageError(f"--restrict {condition!r} names {name}, {why}: give it numbers")
            names = (kernel for kernel in self.kernels if isinstance(kernel, str))
            known = {parameter.name for kernel in names for parameter in _parameters(kernel)}
            if name in known:
                return True  # it concerns the other kernels
            raise UsageError(
                f"--restrict {condition!r} names the unknown parameter {name!r}: "
                f"{suggest_nearest(name, known)}"
            )
        return expressions.holds(condition, numbers)

    def _kernel(self, number: int) -> str | UserKernel:
        return self.kernels[self.space.place(number)[0]]

    def _parameters(self, kernel: str, number: int) -> dict[str, Value]:
        names = {parameter.name for parameter in _parameters(kernel)}
        values = self.space.values(number)
        return {
            axis.name: values[axis.name]
            for axis in self.space.axes
            if axis.kind == "parameter" and axis.name in names
        }

    def _user_kernel(self, kernel: UserKernel, number: int) -> UserKernel:
        values = self.space.values(number)
        chosen: dict[str, list[str]] = {name: [] for name in SWEPT_OPTIONS}
        for axis in self.space.axes:
            for option, kind in SWEPT_OPTIONS.items():
                if axis.kind == kind:
                    value = values[axis.name]
                    chosen[option].append(axis.name if value == "" else f"{axis.name}={value}")
        return apply_launch_options(kernel, chosen)


def make_definition(
    kernels: Sequence[KernelName],
    devices: Any,
    parameters: Mapping[str, Any],
    restrict: str | Sequence[str],
    options: RunOptions,
    objective: str,
    strategy: str,
    budget: int | None,
) -> SweepDefinition:
    """Read a sweep from the arguments of `memlab.sweep`.

    Raises:
        UsageError: A kernel or an option is unknown, or an axis is malformed.
    """
    if not kernels:
        raise UsageError("a sweep needs a kernel: write memlab.sweep('tiled', tile=[8, 16])")
    found = list(dict.fromkeys(_find_kernel(kernel) for kernel in kernels))
    conditions = (restrict,) if isinstance(restrict, str) else tuple(restrict)
    own = [kernel for kernel in found if isinstance(kernel, UserKernel)]
    if own and len(own) < len(found):
        raise UsageError(
            "a sweep takes kernels of the catalog or your own, whose options differ: sweep each "
            "of the two, and compare the sweeps"
        )
    labels = [_kernel_label(kernel) for kernel in found]
    if len(set(labels)) < len(labels):  # files of one name in several folders
        labels = [kernel if isinstance(kernel, str) else kernel.target for kernel in found]
    axes = [
        Axis("kernel", "kernel", tuple(labels)),
        Axis("device", "device", _device_values(devices)),
    ]
    if own:
        own, parameters = _with_own_options(own, parameters)
        fixed = {name: value for name, value in parameters.items() if name not in SWEPT_OPTIONS}
        found = [
            apply_launch_options(kernel, {**fixed, "restrict": list(conditions)}) for kernel in own
        ]
        axes += [axis for name in SWEPT_OPTIONS for axis in _option_axes(name, parameters)]
    else:
        axes += _parameter_axes([kernel for kernel in found if isinstance(kernel, str)], parameters)
    return SweepDefinition(
        tuple(found),
        make_space(axes),
        () if own else conditions,
        options,
        objective,
        strategy,
        budget,
        os.getcwd(),  # noqa: PTH109 - a text
    )


def read_definition(document: Mapping[str, Any]) -> SweepDefinition:
    """Read what `SweepDefinition.document` wrote.

    Raises:
        UsageError: It is not readable, or names files of another folder than the current one.
    """
    definition = _read_definition(document)
    own = any(isinstance(kernel, UserKernel) for kernel in definition.kernels)
    if own and Path.cwd() != Path(definition.folder):
        raise UsageError(
            f"the sweep was begun in {definition.folder}, where its files are: "
            f"'cd {shlex.quote(definition.folder)}', then resume it"
        )
    return definition


def _read_definition(document: Mapping[str, Any]) -> SweepDefinition:
    try:
        return SweepDefinition(
            tuple(
                kernel if isinstance(kernel, str) else _read_user_kernel(kernel)
                for kernel in document["kernels"]
            ),
            Space(tuple(Axis(name, kind, tuple(v)) for name, kind, v in document["axes"])),
            tuple(document["restrict"]),
            RunOptions(**document["options"]),
            document["objective"],
            document["strategy"],
            document["budget"],
            document["folder"],
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = document.get("not_resumable") or f"unreadable: {error}"
        raise UsageError(
            f"the sweep cannot be resumed ({reason}): call it again as before, and what is "
            "stored is not run twice"
        ) from None


def _find_kernel(name: KernelName) -> str | UserKernel:
    """Find a kernel.

    Raises:
        UsageError: There is none; the message names the nearest.
    """
    if isinstance(name, UserKernel):
        return name
    if not isinstance(name, str | os.PathLike):
        return front_end(name).named(name)
    text = os.fspath(name)
    if text in catalog.CATALOG:
        return text
    return find_user_kernel(text) or catalog.find_kernel(text).name


def _with_own_options(
    kernels: Sequence[UserKernel], parameters: Mapping[str, Any]
) -> tuple[list[UserKernel], Mapping[str, Any]]:
    """Give the kernels of Python packages the options that only these have.

    Raises:
        UsageError: The kernels are of several packages, or have other options.
    """
    taken = [with_own_options(kernel, parameters) for kernel in kernels]
    options = [swept_options(kernel, others) for kernel, others in taken]
    if any(each != options[0] for each in options):
        raise UsageError("the kernels of a sweep take the same options: sweep each of these alone")
    return [kernel for kernel, _ in taken], options[0]


def _kernel_label(kernel: str | UserKernel) -> str:
    if isinstance(kernel, str):
        return kernel
    return kernel.name or ":".join(filter(None, (Path(kernel.source).name, kernel.entry)))


def _device_values(devices: Any) -> tuple[Value, ...]:
    given = devices if isinstance(devices, list | tuple) else [devices]
    parts = [
        part
        for device in given
        for part in (device.split(",") if isinstance(device, str) else [device])
    ]
    texts = ("" if part is None else str(part).strip() for part in parts)
    return tuple(dict.fromkeys(texts)) or ("",)


def _parameter_axes(kernels: Sequence[str], parameters: Mapping[str, Any]) -> list[Axis]:
    known = {parameter.name: parameter for kernel in kernels for parameter in _parameters(kernel)}
    axes = []
    for name, given in parameters.items():
        if given is None:
            continue
        if name not in known:
            raise UsageError(
                f"{', '.join(kernels)} {'has' if len(kernels) == 1 else 'have'} no parameter "
                f"{name!r}: {suggest_nearest(name, known)}"
            )
        values = axis_values(name, given)
        for value in values:
            if isinstance(value, str) and not known[name].choices:
                raise UsageError(
                    f"{name} takes whole numbers, got {value!r}: write {name}=8,16,32, "
                    f"{name}=512:4096:x2 or {name}=32:128:+32"
                )
        axes.append(Axis(name, "parameter", values))
    return axes


def _option_axes(option: str, parameters: Mapping[str, Any]) -> list[Axis]:
    """The axes of the symbols or macros: `N=1M,4M` or `{"N": [2**20, 2**22]}`."""
    given = parameters.get(option)
    if given is None:
        return []
    if not isinstance(given, Mapping):
        texts = [given] if isinstance(given, str) else list(given)
        pairs: dict[str, Any] = {}
        for text in texts:
            name, equals, value = str(text).partition("=")
            if option == "symbols" and not equals:
                raise UsageError(f"--set {text!r} gives no value: write --set N=1M,4M")
            name, earlier = name.strip(), pairs.get(name.strip())
            if equals and earlier is not None:
                value = f"{earlier},{value}"  # given twice: both are swept
            pairs[name] = value if equals else earlier
        given = pairs
    kind: Any = SWEPT_OPTIONS[option]
    return [
        Axis(name, kind, ("",) if values is None else axis_values(name, values))
        for name, values in given.items()
    ]


def _parameters(kernel: str) -> Sequence[Any]:
    return catalog.find_kernel(kernel).parameters


def _user_kernel_document(kernel: UserKernel) -> dict[str, Any]:
    if any(
        not isinstance(text, str)
        for text in (*kernel.args, *kernel.constants, *kernel.expect, kernel.reference)
    ):
        raise UsageError("its arguments are arrays or functions in memory")
    if is_object(kernel) or kernel.compiled is not None:
        raise UsageError("its kernel is in memory")
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in ((field.name, getattr(kernel, field.name)) for field in fields(kernel))
    }


def _read_user_kernel(document: Mapping[str, Any]) -> UserKernel:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
    }
    return UserKernel(**values)
