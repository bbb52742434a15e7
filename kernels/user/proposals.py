"""Launch options of a user kernel, proposed from a launch in the host code of its file."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from memlab.kernels.host_code import formulas
from memlab.kernels.host_code.arithmetic import as_pointer
from memlab.kernels.host_code.calls import UNKNOWN_MARK
from memlab.kernels.host_code.formulas import Formula, FormulaError, Unknown, number
from memlab.kernels.host_code.machine import allocation_of
from memlab.kernels.host_code.values import (
    ZEROS,
    Address,
    Allocation,
    Cell,
    Container,
    Content,
    EncodedMap,
    Null,
    Number,
    Pointer,
    Record,
    Tensor,
    Unresolved,
    Value,
)
from memlab.kernels.launch import TENSOR_MAP_BYTES, dtype_bytes
from memlab.kernels.signature import KernelParameter
from memlab.kernels.user.arguments.hints import unsupported_reason
from memlab.kernels.user.arguments.specifications import (
    MAX_FLOATS,
    NUMPY_DTYPES,
    STRUCTURE,
    TENSOR_MAP,
)
from memlab.kernels.user.arguments.tensor_maps import (
    EXAMPLE,
    POINTER_BYTES,
    constant_example,
    points_to_tensor_maps,
    takes_tensor_map,
)
from memlab.kernels.user.arguments.views import example, view_kind
from memlab.kernels.user.expressions import FUNCTIONS
from memlab.kernels.user.launch_options import RECORDED_OPTIONS
from memlab.kernels.user.proposed_maps import UntoldMap, write_map
from memlab.kernels.user.shared_arrays import PointerUse, SharedArray, find_shared_arrays

if TYPE_CHECKING:
    from memlab.kernels.host_code.machine import RecordedLaunch
    from memlab.kernels.signature import Signature
    from memlab.kernels.user.kernel import UserKernel

INDEX_DTYPES = ("i32", "i64", "u32", "u64")
"""Types of indices. Where nothing tells the elements, they are within every array of the launch."""

_RESERVED = {*FUNCTIONS, *RECORDED_OPTIONS, *keyword.kwlist}


@dataclass(frozen=True)
class ProposedLaunch:
    """A launch of a kernel as the file's host code makes it.

    Attributes:
        kernel: The kernel with the launch's options; they may be expressions of `symbols`. It has
            no arguments where one of them has a gap.
        args: The arguments; None for one that the host code does not tell.
        gaps: What no symbol can stand for, with the reason, by the numbers of the arguments; -1
            for the grid and the block.
        symbols: The numbers that the host code does not tell, in the order of the options.
        line: The launch's line.
        source_name: The launch's file.
        in_loop: Whether the launch is the first of a loop.
        is_explored: Whether the program does not make it when it is run without arguments, so that
            its sizes may not suit it.
        stop: How far memlab followed the program where it may still make an explored launch, as
            `RecordedLaunch.stop`.
        sizes: The symbols that are sizes of arrays alone, with the names of the arrays and the
            bytes of what they count.
    """

    kernel: UserKernel
    args: tuple[str | None, ...]
    gaps: dict[int, str]
    symbols: tuple[str, ...]
    line: int
    source_name: str
    in_loop: bool
    is_explored: bool
    stop: str = ""
    sizes: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def is_told(self) -> bool:
        """Whether the file tells all of it, as the program makes it."""
        return not (self.gaps or self.symbols or self.is_explored)

    @property
    def doubt(self) -> str:
        """Why the program may not make it, as a sentence; empty where it does."""
        if not self.is_explored:
            return ""
        if self.stop:
            return f"memlab followed the program only {self.stop} and did not see it come there"
        return "the program does not come there without arguments"


@dataclass
class _Names:
    """The names of unknown numbers in one launch."""

    names: dict[Unknown, str] = field(default_factory=dict)

    def __call__(self, unknown: Unknown) -> str:
        if unknown not in self.names:
            plain = re.sub(r"\W", "_", unknown.name).strip("_") or "value"
            base = f"n{plain}" if plain[0].isdigit() else plain
            base = f"{base}_" if base in _RESERVED else base
            taken = set(self.names.values())
            number_ = 2
            name = base
            while name in taken:
                name, number_ = f"{base}_{number_}", number_ + 1
            self.names[unknown] = name
        return self.names[unknown]

    def fresh(self, name: str) -> str:
        """The name of a number that only the launch options need."""
        return self(Unknown(name, -1 - len(self.names)))


@dataclass(frozen=True)
class _Surroundings:
    """What the arguments of a launch share.

    Attributes:
        time: When the launch happens.
        names: The names of unknown numbers.
        smallest: The elements of the smallest array whose size is a number; None if there is none.
        shared: The arrays that parameters of the kernel pass, by their memory.
        mapped: What the kernel does with the memory of tensor maps, by this memory.
        owners: Names and types of the arrays of tensor maps that no pointer passes, by their
            memory, as far as they have been proposed.
        sizes: The sizes of arrays that the host code does not tell: see `ProposedLaunch`.
    """

    time: int
    names: _Names
    smallest: int | None
    shared: Mapping[Allocation, SharedArray]
    mapped: Mapping[Allocation, PointerUse] = field(default_factory=dict)
    owners: dict[Allocation, tuple[str, str]] = field(default_factory=dict)
    sizes: dict[str, tuple[str, int]] = field(default_factory=dict)


def launch_entry(launch: RecordedLaunch) -> str:
    """The kernel's name with the arguments of its template."""
    arguments = ", ".join(launch.template_arguments or ()).replace(UNKNOWN_MARK, "")
    return f"{launch.kernel}<{arguments}>" if arguments else launch.kernel


def template_symbols(launch: RecordedLaunch) -> tuple[str, ...]:
    """The numbers that the template needs and the host code does not tell."""
    texts = " ".join(launch.template_arguments or ())
    found = re.findall(rf"{re.escape(UNKNOWN_MARK)}(\w+)", texts)
    return tuple(dict.fromkeys(found))


def propose_launch(
    kernel: UserKernel,
    launch: RecordedLaunch,
    signature: Signature,
    stored: frozenset[int] | None = None,
    loaded: frozenset[int] | None = None,
) -> ProposedLaunch:
    """Propose the options of a launch.

    Args:
        kernel: The kernel; its own options stay.
        launch: The launch.
        signature: The kernel's signature, as compiled.
        stored: The numbers of the parameters that the compiled kernel writes through; None if
            that is not known.
        loaded: Those that it reads through.
    """
    names = _Names()
    gaps: dict[int, str] = {}
    grid, block = (_extents(each, names) for each in (launch.grid, launch.block))
    if "0" in (*grid, *block):
        gaps[-1] = "its grid or block would be empty"
    cluster = [] if launch.cluster is None else _extents(launch.cluster, names)
    shared = _number_text(launch.shared, names) or "0"
    args: list[str | None] = []
    values = launch.arguments
    if len(values) > len(signature.parameters):
        gaps[-1] = f"it passes {len(values)} arguments"
    uses = _uses(signature.parameters, stored, loaded)
    mapped = _mapped(values, uses)
    shared_arrays = find_shared_arrays(signature.parameters, values, uses)
    around = _Surroundings(
        launch.time,
        names,
        _smallest_count(signature.parameters, values),
        {
            allocation: replace(each, use=each.use.joined(mapped.get(allocation)))
            for allocation, each in shared_arrays.items()
        },
        mapped,
    )
    for index, parameter in enumerate(signature.parameters):
        value = values[index] if index < len(values) else Unresolved(parameter.name)
        try:
            args.append(_argument(parameter, value, uses[index], around))
        except _Gap as gap:
            args.append(None)
            gaps[index] = str(gap)
    try:
        constants = kernel.constants or _constants(launch, signature, around)
    except _Gap as gap:
        constants, gaps[-1] = (), str(gap)
    known = _known_symbols(kernel)
    written = " ".join(
        map(
            str,
            (
                *(kernel.grid or grid),
                *(kernel.block or block),
                *(kernel.cluster or cluster),
                kernel.shared or shared,
                *(kernel.args or filter(None, args)),
                *constants,
            ),
        )
    )
    used = set(re.findall(r"\w+", written)) - known
    symbols = tuple(name for name in names.names.values() if name in used)
    proposed = replace(
        kernel,
        entry=kernel.entry or launch_entry(launch),
        grid=kernel.grid or tuple(map(_whole_or_text, grid)),
        block=kernel.block or tuple(map(_whole_or_text, block)),
        cluster=kernel.cluster or tuple(map(_whole_or_text, cluster)),
        shared=kernel.shared or _whole_or_text(shared),
        args=kernel.args or (() if gaps else tuple(text for text in args if text is not None)),
        constants=constants,
    )
    return ProposedLaunch(
        proposed,
        tuple(args),
        gaps,
        symbols,
        launch.line,
        launch.source_name,
        launch.in_loop,
        launch.is_explored,
        launch.stop,
        around.sizes,
    )


class _Gap(Exception):
    """An argument that the host code does not tell."""


def _known_symbols(kernel: UserKernel) -> set[str]:
    return {text.partition("=")[0].strip() for text in (*kernel.symbols, *kernel.defines)}


def _whole_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _extents(values: Sequence[Value], names: _Names) -> list[str]:
    """The extents of a grid or block, without trailing ones."""
    axes = ("x", "y", "z")
    texts = [
        _number_text(value, names) or names.fresh(_name_of(value, axis))
        for value, axis in zip(values, axes, strict=True)
    ]
    while len(texts) > 1 and texts[-1] == "1":
        texts.pop()
    return texts


def _name_of(value: Value, default: str) -> str:
    return value.name if isinstance(value, Unresolved) and value.name else default


def _number_text(value: Value, names: Callable[[Unknown], str]) -> str | None:
    """A number in the words of launch options; None if there is none."""
    if not isinstance(value, Number):
        return None
    text = value.formula.text(names)
    if value.divisor is None:
        return text
    return f"({text})/({value.divisor.text(names)})"


def _argument(
    parameter: KernelParameter,
    value: Value,
    use: PointerUse,
    around: _Surroundings,
) -> str:
    """The specification of an argument.

    Raises:
        _Gap: The host code does not tell it.
    """
    if reason := unsupported_reason(parameter):
        raise _Gap(reason)
    if parameter.kind == "scalar":
        return _scalar(parameter, value, around.names)
    if points_to_tensor_maps(parameter):
        return _tensor_maps(parameter, value, use, around)
    if parameter.kind == "pointer":
        return _array(parameter, value, use, around)
    if takes_tensor_map(parameter):
        return _tensor_map(parameter, value, use, around)
    if not isinstance(value, Record) or parameter.parts is None:
        raise _Gap("is a structure whose members the host code does not tell")
    members = []
    for part in parameter.parts:
        held = _member(value, part.name)
        if held is None:
            raise _Gap(f"is a structure whose member {part.name} the host code does not tell")
        if takes_tensor_map(part):
            name = f"{parameter.name}.{part.name}"
            members.append(_tensor_map(replace(parameter, name=name), held, use, around))
        elif part.pointer is not None:
            alone = replace(around, shared={}, sizes={})
            members.append(_array(part.pointer, held, use, alone))
        else:
            text = _number_text(held, around.names)
            members.append(text or around.names.fresh(_name_of(held, part.name)))
    return f"struct={','.join(members)}" if members else "struct"


def _mapped(values: Sequence[Value], uses: Sequence[PointerUse]) -> dict[Allocation, PointerUse]:
    """What a kernel does with the memory of the tensor maps that are passed."""
    mapped: dict[Allocation, PointerUse] = {}
    for value, use in zip(values, uses, strict=False):
        for encoded in _maps_in(value):
            allocation = allocation_of(encoded.address)
            if allocation is not None:
                mapped[allocation] = use.joined(mapped.get(allocation))
    return mapped


def _maps_in(value: Value) -> Iterator[EncodedMap]:
    """The tensor maps that an argument is, holds, or points to."""
    if isinstance(value, EncodedMap):
        yield value
    cells: Iterable[Cell] = ()
    if isinstance(value, Record):
        cells = value.members.values()
    elif isinstance(value, Pointer | Container):
        cells = _cells_behind(value)
    elif isinstance(value, Address):
        cells = (value.cell,)
    for cell in cells:
        if isinstance(cell.value, EncodedMap | Record):
            yield from _maps_in(cell.value)


def _cells_behind(value: Pointer | Container) -> list[Cell]:
    """The elements that were written one by one, from where a pointer to tensor maps points."""
    offset = value.offset.whole if isinstance(value, Pointer) else 0
    first = (offset or 0) // TENSOR_MAP_BYTES
    elements = value.allocation.elements
    return [elements[index] for index in sorted(elements) if index >= first]


def _tensor_maps(
    parameter: KernelParameter, value: Value, use: PointerUse, around: _Surroundings
) -> str:
    """The specification of tensor maps in global memory."""
    maps = list(_maps_in(value))
    if not maps:
        raise _Gap(f"points to tensor maps, which the host code does not tell: write {EXAMPLE}")
    return _listed_maps(parameter, maps, use, around)


def _listed_maps(
    parameter: KernelParameter, maps: Sequence[EncodedMap], use: PointerUse, around: _Surroundings
) -> str:
    """The specification of tensor maps, each of whose arrays is named after a parameter."""
    texts = [
        _tensor_map(replace(parameter, name=f"{parameter.name}.{number}"), each, use, around)
        for number, each in enumerate(maps)
    ]
    if len(texts) == 1:
        return texts[0]
    listed = ",".join(text.removeprefix(f"{TENSOR_MAP}=") for text in texts)
    return f"{TENSOR_MAP}[{len(texts)}]={listed}"


def _tensor_map(
    parameter: KernelParameter, value: Value, use: PointerUse, around: _Surroundings
) -> str:
    """The specification of a tensor map: of the array of another argument, or of its own."""
    if not isinstance(value, EncodedMap):
        raise _Gap(f"is a tensor map, which the host code does not tell: write {EXAMPLE}")
    try:
        text = write_map(value, lambda number_: _number_text(number_, around.names))
    except UntoldMap as error:
        raise _Gap(f"is a tensor map {error}: write {EXAMPLE}") from None
    pointer = as_pointer(value.address)
    if not isinstance(pointer, Pointer):
        pointer = Pointer(Allocation(parameter.name, None))
    allocation, name, dtype = pointer.allocation, parameter.name, text.dtype
    if shared := around.shared.get(allocation):
        passed = shared.parameter
        name, dtype = passed.name, passed.dtype or passed.member_dtype
        start = shared.start_of(replace(passed, dtype=dtype), pointer.offset)
    else:
        name, dtype = around.owners.get(allocation, (name, dtype))
        start = pointer.offset.scaled(Fraction(1, dtype_bytes(NUMPY_DTYPES[dtype])))
    place = None if start is None else start.whole
    is_own = shared is None and allocation not in around.owners
    if not dtype or dtype_bytes(NUMPY_DTYPES[dtype]) != dtype_bytes(NUMPY_DTYPES[text.dtype]):
        raise _Gap(f"is a tensor map of an array whose elements have another size: write {EXAMPLE}")
    if place is None or place < 0 or (is_own and place):
        raise _Gap(f"is a tensor map that begins within an array: write {EXAMPLE}")
    if not is_own:
        behind = f"+{place}" if place else ""
        return f"{TENSOR_MAP}=@{name}{behind}{text.extents}{text.options}"
    if all(part.isalnum() for part in re.split(r"[._]", name)):
        around.owners[allocation] = name, dtype
    role = _role(allocation, around.time, around.mapped.get(allocation, use))
    array = KernelParameter(name, "pointer", dtype, "", 8, dtype_bytes(NUMPY_DTYPES[dtype]))
    fill = "" if role == "out" else _fill(array, allocation, text.count, around)
    prefix = "" if role == "in" else f"{role}:"
    return f"{TENSOR_MAP}={prefix}{dtype}{text.array_extents}{text.options}{fill}"


def _member(value: Value, path: str) -> Value | None:
    """A member of a record, such as `corner.y` or `weights[2]`."""
    for step in re.findall(r"\w+", path):
        if isinstance(value, Record) and step in value.members:
            value = value.members[step].value
        elif (
            isinstance(value, Pointer) and step.isdigit() and int(step) in value.allocation.elements
        ):
            value = value.allocation.elements[int(step)].value
        else:
            return None
    return value


def _scalar(parameter: KernelParameter, value: Value, names: _Names) -> str:
    dtype = parameter.dtype
    if kind := view_kind(parameter.spelling):
        raise _Gap(f"is a {kind} object, which the host code does not tell: write {example(kind)}")
    if isinstance(value, Null):
        return f"{dtype}=0"
    if isinstance(value, Pointer | Container | Address | Record | Tensor):
        raise _Gap("is no number that the host code tells")
    text = _number_text(value, names)
    if text is None:
        return f"{dtype}={names.fresh(_name_of(value, parameter.name))}"
    constant = value.formula.constant if isinstance(value, Number) else None
    if constant is not None and isinstance(value, Number) and value.divisor is None:
        return f"{dtype}={_constant_text(dtype, constant)}"
    return f"{dtype}={text}"


def _constant_text(dtype: str, value: Fraction) -> str:
    if dtype == "bool":
        return str(int(value != 0))
    if dtype in MAX_FLOATS:
        if value.denominator == 1 and value.numerator.bit_length() < 64:
            return str(value.numerator)
        return repr(float(value))
    bits = int(dtype[1:])
    whole = math.trunc(value) % 2**bits  # as C++ converts it
    if dtype.startswith("i") and whole >= 2 ** (bits - 1):
        whole -= 2**bits
    return str(whole)


def _array(
    parameter: KernelParameter,
    value: Value,
    use: PointerUse,
    around: _Surroundings,
) -> str:
    if isinstance(value, Null) or (isinstance(value, Number) and value.formula.whole == 0):
        return "null"
    if isinstance(value, Container):
        value = Pointer(value.allocation, number(0), value.element)
    if isinstance(value, Address):
        value = Pointer(Allocation(value.cell.name, None))
    if not isinstance(value, Pointer):
        value = Pointer(Allocation(_name_of(value, parameter.name), None))
    allocation, shared = value.allocation, around.shared.get(value.allocation)
    count = _element_count(parameter, value)
    if count is not None and count.constant is not None and count.constant < 1:
        raise _Gap("points behind the memory that the host code allocates")
    start = shared.start_of(parameter, value.offset) if shared else None
    behind = f"+{start.text(around.names)}" if start is not None and start.terms else ""
    if shared is not None and start is not None and shared.parameter is not parameter:
        return f"@{shared.parameter.name}{behind}"
    if behind:
        count = _element_count(parameter, replace(value, offset=number(0)))
    structure = parameter.structure
    if parameter.target is not None or (structure is not None and structure.has_pointers):
        raise _Gap("points to pointers, whose arrays the host code does not tell")
    base = parameter.name if parameter.name.isidentifier() else "array"
    text = around.names.fresh(f"{base}_size") if count is None else count.text(around.names)
    if count is None and parameter.name.isidentifier():
        around.sizes[text] = parameter.name, parameter.element_bytes or 1
    is_partial = False
    if shared is not None and shared.parameter is parameter:
        use, is_partial = shared.use, shared.is_partial
    role = _role(allocation, around.time, use)
    if role == "out" and is_partial:  # the kernel does not write all of it
        role = "inout"
    fill = "" if role == "out" else _fill(parameter, allocation, count, around)
    return f"{role}:{_array_type(parameter, text)}{behind}{fill}"


def _uses(
    parameters: Sequence[KernelParameter],
    stored: frozenset[int] | None,
    loaded: frozenset[int] | None,
) -> list[PointerUse]:
    """What the kernel does with each parameter."""
    return [
        PointerUse(
            (not parameter.readonly or points_to_tensor_maps(parameter))
            and (stored is None or index in stored),
            loaded is None or index in loaded,
        )
        for index, parameter in enumerate(parameters)
    ]


def _smallest_count(parameters: Sequence[KernelParameter], values: Sequence[Value]) -> int | None:
    """The elements of the smallest array that is passed."""
    counts = [
        _element_count(parameter, Pointer(value.allocation, getattr(value, "offset", number(0))))
        for parameter, value in zip(parameters, values, strict=False)
        if parameter.kind == "pointer" and isinstance(value, Pointer | Container)
    ]
    known = [count.whole for count in counts if count is not None]
    return min((count for count in known if count is not None and count > 0), default=None)


def _element_count(parameter: KernelParameter, value: Pointer) -> Formula | None:
    """The number of elements behind a pointer; None if it is not known."""
    if value.allocation.nbytes is None:
        return value.allocation.count if not value.offset.terms else None
    size = parameter.element_bytes or 1
    try:
        rest = value.allocation.nbytes - value.offset
        return formulas.rounded("floor", rest.scaled(Fraction(1, size)))
    except FormulaError:
        return None


def _array_type(parameter: KernelParameter, count: str) -> str:
    """Type and extents; structures are rows of their members or bytes."""
    if parameter.dtype:
        return f"{parameter.dtype}[{count}]"
    if not parameter.element_bytes:
        return f"u8[{count}]"
    if parameter.member_dtype:
        members = parameter.element_bytes // dtype_bytes(NUMPY_DTYPES[parameter.member_dtype])
        return f"{parameter.member_dtype}[{count},{members}]"
    if parameter.structure is not None:
        return f"{STRUCTURE}[{count}]"
    return f"u8[{count},{parameter.element_bytes}]"


def _content(allocation: Allocation, time: int) -> Content | None:
    """What memory holds at a launch; kernels are taken to change values, but no indices."""
    content, is_changed = None, False
    for event in allocation.events:
        if event.time < time and event.kind == "filled":
            content, is_changed = event.content, False
        elif event.time < time and event.kind == "launched":
            is_changed = True
    if content is not None and content.kind == "number" and is_changed:
        return None
    return content


def _role(allocation: Allocation, time: int, use: PointerUse) -> str:
    """Whether an array is an input, an output or both: what nothing fills is only written."""
    if not use.is_written:
        return "in"
    # The host writes memory of its own, and memory that it shares, without a copy.
    is_filled = (
        allocation.shared_with_host
        or not allocation.on_device
        or any(
            event.time < time and event.kind in ("filled", "launched")
            for event in allocation.events
        )
    )
    return "inout" if use.is_read or is_filled or allocation.nbytes is None else "out"


def _fill(
    parameter: KernelParameter, allocation: Allocation, count: Formula | None, around: _Surroundings
) -> str:
    """The fill of an array: as the host code does it, or what does no harm; empty for random."""
    content = _content(allocation, around.time)
    if content == ZEROS:
        return "=zeros"
    dtype = parameter.dtype or parameter.member_dtype
    if content is not None and dtype:
        told = _told_fill(dtype, content, around.names)
        if told:
            return f"={told}"
    if parameter.dtype in INDEX_DTYPES:
        whole = None if count is None else count.whole
        if whole is None or around.smallest is None or whole <= around.smallest + 1:
            return "=arange"  # also for the n + 1 offsets of n rows
        return f"=randint:0:{around.smallest}"
    is_structure = not dtype and parameter.element_bytes
    return "=zeros" if is_structure else ""


def _told_fill(dtype: str, content: Content, names: _Names) -> str:
    """A known content in the words of a fill; empty where there is none."""
    constant, is_real = content.low.constant, dtype in MAX_FLOATS
    if content.kind == "index":
        return "" if dtype == "bool" else "arange"
    if content.kind == "rising":
        return "arange" if dtype in INDEX_DTYPES else ""
    if content.kind == "number":
        text = "" if constant is None else _constant_text(dtype, constant)
        return {"1": "ones", "0": "zeros"}.get(text, text)
    if content.high is None or dtype == "bool":
        return ""
    low, high = content.low, content.high
    for end, last in ((low, Fraction(0)), (high, Fraction(1))):
        if end.constant is not None and not is_real:
            bits = int(dtype[1:])
            least = -(2 ** (bits - 1)) if dtype.startswith("i") else 0
            if not least <= end.constant - last < least + 2**bits:
                return ""
    if low.constant is not None and high.constant is not None and low.constant >= high.constant:
        return ""
    word = "uniform" if is_real else "randint"
    return f"{word}:{low.text(names)}:{high.text(names)}"


def _constants(
    launch: RecordedLaunch, signature: Signature, around: _Surroundings
) -> tuple[str, ...]:
    """Fills for the `__constant__` variables that the host code fills.

    Raises:
        _Gap: The kernel uses a tensor map there, of which the host code does not tell all.
    """
    names = {variable.name.rpartition("::")[2]: variable for variable in signature.variables}
    texts = []
    for name, maps in launch.constants:
        if name not in names:
            continue
        variable = names[name]
        if maps and variable.linkage_name in signature.used:
            parameter = KernelParameter(variable.name, "pointer", "", "", POINTER_BYTES)
            # What the kernel does through a map in constant memory is not known.
            text = _listed_maps(parameter, maps, PointerUse(True, True), around)
            texts.append(f"{variable.name}={text}")
        elif variable.is_tensor_map and variable.linkage_name in signature.used:
            raise _Gap(
                f"reads tensor maps in {name}, which the host code does not tell (write --const "
                f"'{name}={constant_example(variable)}')"
            )
        elif not maps and (variable.dtype or variable.member_dtype):
            texts.append(f"{variable.name}=random")
    return tuple(texts)
