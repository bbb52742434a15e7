"""PTX text into plain data: a `Module` of entries, their instructions and variables.

The grammar is that of NVIDIA's *PTX ISA*, as far as NVRTC emits it. Nothing here knows what
an opcode means; an instruction keeps its PTX line and the CUDA source line that `.loc` names.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from memlab.device.properties import WARP_SIZE
from memlab.errors import UsageError

TYPE_BYTES: Mapping[str, int] = {
    **{f"{kind}{bits}": bits // 8 for kind in "bsu" for bits in (8, 16, 32, 64)},
    "f16": 2,
    "f16x2": 4,
    "bf16": 2,
    "bf16x2": 4,
    "f32": 4,
    "f64": 8,
    "pred": 1,
    "b128": 16,
}
"""Bytes of PTX's fundamental types (PTX ISA, section 5.2)."""


class PtxError(UsageError):
    """PTX that cannot be read or is not understood."""


@dataclass(frozen=True)
class Register:
    """A virtual register or a special one such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal: `bits` as written, of `kind` `int`, `f32` or `f64`."""

    kind: str
    bits: int


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, or a label or function as an operand."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base+offset]`, offset in bytes; no base means an absolute address."""

    base: Register | Symbol | None
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """`{a, b, …}`: the registers of a vector access or of a pack."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class DestinationPair:
    """`d|p`: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    """`!p`: a predicate operand that is inverted."""

    register: Register


Operand: TypeAlias = Register | Immediate | Symbol | Address | Vector | DestinationPair | Negated


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: As written, with all its suffixes.
        operands: Destination first.
        guard: The predicate register of `@p`, or None.
        guard_negated: Whether it is `@!p`.
        ptx_line: Line in the PTX text, from 1.
        source_line: Line in the CUDA source, from 1; 0 when unknown.
    """

    opcode: str
    operands: tuple[Operand, ...]
    guard: str | None
    guard_negated: bool
    ptx_line: int
    source_line: int


@dataclass(frozen=True)
class Variable:
    """A declared variable or parameter.

    Attributes:
        space: `param`, `shared`, `local`, `global` or `const`.
        name: Its symbol.
        type: Element type.
        align: Alignment, bytes.
        size: Whole size, bytes; 0 for an `extern` array of unknown size.
        initial: Its initial bytes, or None for zeros.
        fault: Why its initial bytes are not known, or nothing: a kernel that uses it cannot run.
        symbols: Then, what it starts with, as written.
    """

    space: str
    name: str
    type: str
    align: int
    size: int
    initial: bytes | None = None
    fault: str = ""
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True)
class PtxFunction:
    """A kernel, or a function that kernels call.

    Names are unique in it: what a nested scope declares carries a `#` and a number.

    Attributes:
        name: Its symbol.
        parameters: What the launch or the caller gives.
        variables: What the body declares, and the `.param` variables of its calls.
        registers: Register name to PTX type.
        instructions: The body.
        labels: The instruction index that each label stands before.
        results: What a function returns.
        file: The number of the file that its lines are in.
    """

    name: str
    parameters: tuple[Variable, ...]
    variables: tuple[Variable, ...]
    registers: Mapping[str, str]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    results: tuple[Variable, ...] = ()
    file: str = ""


@dataclass(frozen=True)
class Module:
    """All that one PTX text declares."""

    version: str
    target: str
    variables: tuple[Variable, ...]
    entries: Mapping[str, PtxFunction]
    functions: Mapping[str, PtxFunction] = field(default_factory=dict)


_LARGEST_OFFSET = 2**62 - 1  # so that the sum of two is a signed number of 64 bits
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_FLOAT_BITS = re.compile(r"0([fF])([0-9a-fA-F]{8})$|0([dD])([0-9a-fA-F]{16})$")
_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+[eE])([eE]?[+-]?\d+)?$")
_ADDRESS = re.compile(r"\[\s*([%$\w.]+)\s*(?:\+\s*([+-]?\w+)|(-\s*\w+))?\s*\]$")
_LABEL = re.compile(r"([$%A-Za-z_][\w$]*)\s*:(?!:)")
_LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d{1,10})\s+(\d+)(?:.*\binlined_at\s+(\d+)\s+(\d{1,10})\s+(\d+))?"
)
_HEADER = re.compile(
    r"(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\s*(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?"
)
_VARIABLE = re.compile(
    r"(?:\.(?:visible|weak|extern|common)\s+)*\.(param|shared|local|global|const)\s+(.*)$", re.S
)
_DECLARATOR = re.compile(r"([%$\w]+)\s*((?:\[[^\]]*\]\s*)*)(?:=\s*(.*))?$", re.S)


def parse_ptx(text: str) -> Module:
    """Read a PTX module.

    Args:
        text: The PTX, as NVRTC gives it or written by hand.

    Raises:
        PtxError: The text is not PTX that can be read; names the line.
    """
    statements = _Reader(text)
    try:
        return _module(iter(statements))
    except (ValueError, LookupError, StopIteration, RecursionError) as error:
        # A number that is none, a list that ends too soon, braces without end.
        raise PtxError(f"PTX line {statements.line}: not understood") from error


class _Reader:
    """The statements of a text with their lines.

    Attributes:
        line: Of the statement that is being read.
    """

    def __init__(self, text: str) -> None:
        self.line, self._text = 1, text

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for line, statement in _statements(self._text):
            self.line = line
            yield line, statement


def _module(statements: Iterator[tuple[int, str]]) -> Module:
    version, target = "", ""
    variables: list[Variable] = []
    entries: dict[str, PtxFunction] = {}
    functions: dict[str, PtxFunction] = {}
    for line, statement in statements:
        if statement.startswith(".version"):
            version = statement.removeprefix(".version").strip()
        elif statement.startswith(".target"):
            target = statement.removeprefix(".target").split(",")[0].strip()
        elif match := _HEADER.match(statement):
            kind, results, name, parameters = match.groups()
            if statement.endswith("{"):
                entry = _entry(name, parameters or "", results or "", statements, line)
                (entries if kind == "entry" else functions)[name] = entry
        elif _VARIABLE.match(statement):
            variables.extend(_variables(statement, line))
        elif statement.startswith((".address_size", ".file", ".section", ".pragma", ".loc", "}")):
            continue
        else:
            raise PtxError(f"PTX line {line}: not understood: {statement[:60]}")
    if not version:
        raise PtxError("not PTX: there is no .version directive")
    known = tuple(_with_function_addresses(each, functions) for each in variables)
    return Module(version, target, known, entries, functions)


def function_address(name: str) -> int:
    """What stands for the address of a function: calls through pointers are told apart by it."""
    return 0x7A00_0000_0000 + 16 * zlib.crc32(name.encode())


def _with_function_addresses(variable: Variable, functions: Mapping[str, PtxFunction]) -> Variable:
    """The variable; one that starts with addresses of functions gets what stands for them."""
    names = [each.strip() for each in variable.symbols]
    if not names or not all(each in functions or _INTEGER.match(each) for each in names):
        return variable
    width = TYPE_BYTES[variable.type]
    words = [function_address(n) if n in functions else int(n.rstrip("U"), 0) for n in names]
    initial = b"".join((each % (1 << 8 * width)).to_bytes(width, "little") for each in words)
    return replace(variable, initial=initial.ljust(variable.size, b"\0"), fault="")


def rename_operands(
    instruction: Instruction, names: Mapping[str, str], registers: Mapping[str, str]
) -> Instruction:
    """The instruction with other names for registers, variables and labels.

    Args:
        instruction: What to change.
        names: Old name to new; others stay.
        registers: The registers, by their new names: inline assembly declares some without `%`,
            and only this tells them from symbols.
    """

    def change(operand: Operand) -> Operand:
        if isinstance(operand, (Register, Symbol)):
            name = names.get(operand.name, operand.name)
            if name in registers or isinstance(operand, Register):
                return Register(name)
            return Symbol(name, operand.offset)
        if isinstance(operand, Address) and operand.base is not None:
            base = change(operand.base)
            assert isinstance(base, (Register, Symbol))
            return Address(base, operand.offset)
        if isinstance(operand, Vector):
            return Vector(tuple(map(change, operand.items)))
        if isinstance(operand, DestinationPair):
            return DestinationPair(change(operand.first), change(operand.second))
        if isinstance(operand, Negated):
            return Negated(Register(names.get(operand.register.name, operand.register.name)))
        return operand

    guard = instruction.guard
    return replace(
        instruction,
        operands=tuple(map(change, instruction.operands)),
        guard=None if guard is None else names.get(guard, guard),
    )


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, statement): directives, headers up to `{`, labels with `:`, `{` and `}`.

    Each character is looked at a few times, whatever the text: a kernel may have megabytes.
    """
    pieces: list[str] = []  # of a statement that goes on
    start, skip_section, header = 0, False, False
    for number, raw in enumerate(_without_comments(text).splitlines(), 1):
        line = raw.split("//", 1)[0].strip()
        if skip_section:
            skip_section = "}" not in line
            continue
        if not pieces and line.startswith(
            (".version", ".target", ".address_size", ".file", ".loc ", ".loc\t")
        ):
            yield number, line
            continue
        if not pieces and line.startswith(".section"):
            skip_section = True
            continue
        at = 0
        while at < len(line):
            if not pieces:
                start = number
                label = _LABEL.match(line, at)
                if label:
                    yield number, label[1] + ":"
                    at = _skip_blanks(line, label.end())
                    continue
            # A brace stands alone (a scope), ends a header, or belongs to a vector or initializer.
            scope = line[at] in "{}" and not pieces
            if len(pieces) < _HEADER_PIECES:
                beginning = "".join(pieces) + line[at : at + _HEADER_CHARACTERS]
                header = _HEADER_START.match(beginning) is not None
            end = (_BRACE if scope else _HEADER_END if header else _END).search(line, at)
            if end is None:
                pieces.append(line[at:] + " ")
                break
            pieces.append(line[at : end.start()] + ("" if end[0] == ";" else end[0]))
            statement = "".join(pieces).strip()
            pieces, at = [], _skip_blanks(line, end.end())
            if statement:
                yield start, statement
    if pieces:
        raise PtxError(f"PTX line {start}: unfinished statement: {''.join(pieces)[:60]}")


_HEADER_PIECES = 8  # lines within which a statement shows whether it is a header
_HEADER_CHARACTERS = 200  # and of a line
_HEADER_START = re.compile(r"(?:\.(?:visible|weak|extern)\s+)*\.(?:entry|func)\b")
_BRACE, _HEADER_END, _END = re.compile(r"[{}]"), re.compile(r"[;{]"), re.compile(";")
_BLANKS = re.compile(r"\s*")


def _skip_blanks(line: str, at: int) -> int:
    blanks = _BLANKS.match(line, at)
    assert blanks is not None
    return blanks.end()


def _without_comments(text: str) -> str:
    """The text with blanks in the place of `/* … */`; lines stay where they are."""
    kept, at = [], 0
    while (start := text.find("/*", at)) >= 0 and (end := text.find("*/", start + 2)) >= 0:
        kept += [text[at:start], re.sub(r"[^\n]", " ", text[start : end + 2])]
        at = end + 2
    return "".join(kept) + text[at:]


@dataclass
class _BodyBuilder:
    """What accumulates while a body is read."""

    variables: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    jump_tables: dict[str, Vector] = field(default_factory=dict)
    scopes: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    scopes_seen: int = 0

    def open(self) -> None:
        """Enter a scope: its first instruction, and its names with the unique ones."""
        self.scopes.append((len(self.instructions), {}))
        self.scopes_seen += 1

    def close(self) -> None:
        """Leave a scope: its instructions take the unique names."""
        start, names = self.scopes.pop()
        for index in range(start, len(self.instructions) if names else start):
            self.instructions[index] = rename_operands(
                self.instructions[index], names, self.registers
            )

    def unique(self, name: str) -> str:
        """The name under which the entry knows what the innermost scope declares."""
        if len(self.scopes) > 1:
            self.scopes[-1][1][name] = f"{name}#{self.scopes_seen}"
            return f"{name}#{self.scopes_seen}"
        if not name.startswith(("%", "$")):
            self.scopes[-1][1][name] = name  # so that a register is told from a symbol
        return name


def _entry(
    name: str,
    parameters: str,
    results: str,
    statements: Iterator[tuple[int, str]],
    first_line: int,
) -> PtxFunction:
    body = _BodyBuilder()
    body.open()
    source_line, file = 0, ""
    lines: dict[tuple[str | Any, ...], int] = {}  # what each .loc came from, in the body's own file
    for line, statement in statements:
        if statement == "{":
            body.open()
        elif statement == "}":
            body.close()
            if not body.scopes:
                return PtxFunction(
                    name,
                    tuple(_parameter_variables(parameters, first_line)),
                    tuple(body.variables),
                    body.registers,
                    tuple(_with_jump_targets(body)),
                    body.labels,
                    tuple(_parameter_variables(results, first_line)),
                    file,
                )
        elif statement.startswith((".loc ", ".loc\t")):
            match = _LOC.match(statement)
            if match is None:
                raise PtxError(f"PTX line {line}: not understood: {statement[:60]}")
            file = file or match[1]
            if match[1] == file:
                found = int(match[2])
            else:  # inlined from a header: the line that called it
                found = int(match[5] or 0) if match[4] == file else lines.get(match.groups()[3:], 0)
            lines[match.groups()[:3]] = found
            source_line = found or source_line
        elif statement.startswith(".reg"):
            body.registers.update(
                (body.unique(each), kind) for each, kind in _registers(statement, line)
            )
        elif statement.endswith(":"):
            body.labels[body.unique(statement[:-1])] = len(body.instructions)
        elif statement.startswith(".branchtargets"):
            table = next(reversed(body.labels))
            body.jump_tables[table] = Vector(tuple(map(Symbol, _split_operands(statement[14:]))))
        elif _VARIABLE.match(statement):
            body.variables.extend(
                replace(each, name=body.unique(each.name)) for each in _variables(statement, line)
            )
        elif statement.startswith("."):
            continue  # .pragma, .maxntid and the like do not change what is computed
        else:
            body.instructions.append(_instruction(statement, line, source_line))
    raise PtxError(f"PTX line {first_line}: the body of {name} has no end")


def _parameter_variables(parameters: str, line: int) -> Iterator[Variable]:
    for text in parameters.split(","):
        if text.strip():
            yield from _variables(text.strip(), line)


def _with_jump_targets(body: _BodyBuilder) -> Iterator[Instruction]:
    """The instructions; one that names a jump table gets the table's labels instead."""
    for each in body.instructions:
        last = each.operands[-1] if each.operands else None
        if isinstance(last, Symbol) and last.name in body.jump_tables:
            yield replace(each, operands=(*each.operands[:-1], body.jump_tables[last.name]))
        else:
            yield each


def _registers(statement: str, line: int) -> Iterator[tuple[str, str]]:
    match = re.match(r"\.reg\s*\.(\w+)\s+(.*)$", statement)
    if match is None or match[1] not in TYPE_BYTES:
        raise PtxError(f"PTX line {line}: not understood: {statement[:60]}")
    for name in match[2].split(","):
        several = re.match(r"\s*([%$\w]+)<(\d+)>\s*$", name)
        if several:
            if int(several[2]) > 1_000_000:
                raise PtxError(f"PTX line {line}: {several[2]} registers; at most 1000000")
            for index in range(int(several[2])):
                yield f"{several[1]}{index}", match[1]
        else:
            yield name.strip(), match[1]


def _variables(statement: str, line: int) -> list[Variable]:
    match = _VARIABLE.match(statement)
    if match is None:
        raise PtxError(f"PTX line {line}: not understood: {statement[:60]}")
    space, rest = match[1], match[2]
    align, type_name = 0, ""
    words = rest.split()
    while words and words[0].startswith("."):
        word = words.pop(0)
        if word == ".align":
            align = int(words.pop(0))
        elif word[1:] in TYPE_BYTES:
            type_name = word[1:]
        elif word.startswith(".attribute"):
            continue  # such as `.attribute(.managed)`: where the memory lies changes no result
        elif word in (".ptr", ".global", ".const", ".shared", ".local"):
            # `.ptr .align 1` describes what a pointer points to, not the parameter itself.
            if word == ".ptr":
                words = [each for each in words if not each.startswith(".")]
                words = words[1:] if len(words) > 1 else words
                align = 0
        elif word[1:] in ("v2", "v4"):
            continue
        else:
            raise PtxError(f"PTX line {line}: not understood: {statement[:60]}")
    declarator = _DECLARATOR.match(" ".join(words))
    if not type_name or declarator is None:
        raise PtxError(f"PTX line {line}: not understood: {statement[:60]}")
    name, extents, initial = declarator.groups()
    count = 1
    for extent in re.findall(r"\[([^\]]*)\]", extents):
        count *= int(extent.strip() or "0", 0)
    size = count * TYPE_BYTES[type_name]
    variable = Variable(space, name, type_name, align or TYPE_BYTES[type_name], size)
    if not initial:
        return [variable]
    try:
        return [replace(variable, initial=_initial_bytes(name, initial, type_name, size, line))]
    except PtxError as error:  # it may be of no concern to the kernel that runs
        symbols = tuple(filter(None, re.split(r"[{},\s]+", initial)))
        return [replace(variable, fault=str(error), symbols=symbols)]


def _initial_bytes(name: str, text: str, type_name: str, size: int, line: int) -> bytes:
    values = [each.strip() for each in text.replace("{", " ").replace("}", " ").split(",")]
    width = TYPE_BYTES[type_name]
    out = bytearray()
    for value in filter(None, values):
        literal = _literal(value)
        if literal is None:
            raise PtxError(
                f"PTX line {line}: {name} starts with {value[:40]}, which is no number; the "
                "emulator knows addresses of functions and variables in kernels alone: set it there"
            )
        out += (literal.bits & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
    return bytes(out.ljust(size, b"\0"))


def _instruction(statement: str, line: int, source_line: int) -> Instruction:
    guard, negated = None, False
    if statement.startswith("@"):
        match = re.match(r"@(!?)\s*([%$\w]+)\s+(.*)$", statement, re.S)
        if match is None:
            raise PtxError(f"PTX line {line}: not understood: {statement[:60]}")
        negated, guard, statement = bool(match[1]), match[2], match[3]
    opcode, _, rest = statement.strip().partition(" ")
    opcode, tab, more = opcode.partition("\t")
    operands = tuple(
        _operand(text, line) for text in _split_operands(more + " " + rest if tab else rest)
    )
    return Instruction(opcode.strip(), operands, guard, negated, line, source_line)


def _split_operands(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    if text[start:].strip():
        yield text[start:].strip()


def _literal(text: str) -> Immediate | None:
    if text == "WARP_SZ":  # PTX's one predefined constant (PTX ISA, "Identifiers")
        return Immediate("int", WARP_SIZE)
    if _INTEGER.match(text):
        return Immediate("int", int(text.rstrip("U"), 0))
    if match := _FLOAT_BITS.match(text):
        return (
            Immediate("f32", int(match[2], 16)) if match[1] else Immediate("f64", int(match[4], 16))
        )
    if _FLOAT.match(text):
        return Immediate("f64", struct.unpack("<Q", struct.pack("<d", float(text)))[0])
    return None


def _operand(text: str, line: int) -> Operand:
    if "|" in text:
        first, second = text.split("|")
        return DestinationPair(Register(first.strip()), Register(second.strip()))
    if text.startswith("%") or text == "_":
        return Register(text)
    if text.startswith("!"):
        return Negated(Register(text[1:].strip()))
    if text.startswith(("{", "(")):
        items = list(_split_operands(text[1:-1]))
        if any(each.startswith(("{", "(")) for each in items):
            raise PtxError(f"PTX line {line}: a vector within a vector: {text[:40]}")
        return Vector(tuple(_operand(each, line) for each in items))
    if text.startswith("["):
        match = _ADDRESS.match(text)
        if match is None and "," in text:  # of a texture or a tensor: with coordinates
            return Vector(tuple(_operand(each, line) for each in _split_operands(text[1:-1])))
        if match is None:
            raise PtxError(f"PTX line {line}: address not understood: {text}")
        name, plus, minus = match.groups()
        offset = int(plus or (minus or "0").replace(" ", ""), 0)
        absolute = int(name, 0) if name[0].isdigit() else None
        if max(abs(offset), absolute or 0) > _LARGEST_OFFSET:
            raise PtxError(f"PTX line {line}: address beyond 64 bits: {text}")
        if absolute is not None:
            return Address(None, absolute + offset)
        return Address(Register(name) if name.startswith("%") else Symbol(name), offset)
    literal = _literal(text)
    if literal is not None:
        return literal
    match = re.match(r"([$A-Za-z_][\w$]*)\s*(?:\+\s*(\d+))?$", text)
    if match is None:
        raise PtxError(f"PTX line {line}: operand not understood: {text[:40]}")
    return Symbol(match[1], int(match[2] or 0))
