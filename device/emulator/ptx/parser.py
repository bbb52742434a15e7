"""Parses PTX text into plain data: a `Module` of entries, their instructions and variables.

The grammar is that of NVIDIA's *PTX ISA*, as far as NVRTC emits it. The parser does not know the
meaning of opcodes. An instruction keeps its PTX line and the CUDA source line that `.loc` names.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
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
    """PTX that cannot be parsed, or that the emulator does not support."""


@dataclass(frozen=True)
class Register:
    """A virtual register, or a special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal.

    Attributes:
        kind: `int`, `f32` or `f64`.
        bits: The integer, or the bits of the floating-point number.
    """

    kind: str
    bits: int


@dataclass(frozen=True)
class Symbol:
    """A variable's address, a label or a function as an operand.

    Attributes:
        name: Its name.
        offset: Bytes added to the address.
    """

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """A memory operand, `[base+offset]`.

    Attributes:
        base: The register or variable; None for an absolute address.
        offset: Bytes added to it, or the absolute address.
    """

    base: Register | Symbol | None
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """A vector operand, `{a, b, …}`, of a vector access, a pack or an unpack."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class DestinationPair:
    """Two destinations, `d|p`."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    """An inverted predicate operand, `!p`."""

    register: Register


Operand: TypeAlias = Register | Immediate | Symbol | Address | Vector | DestinationPair | Negated


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: The opcode as written, with all suffixes.
        operands: The operands, destination first.
        guard: The predicate register of `@p` or `@!p`; None without a guard.
        guard_negated: Whether the guard is `@!p`.
        ptx_line: Line in the PTX text, from 1.
        source_line: Line in the CUDA source, from 1; 0 where it is unknown.
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
        name: Its name.
        type: PTX type of its elements.
        align: Alignment in bytes.
        size: Total size in bytes; 0 for an `extern` array of unknown size.
        initial: Its initial bytes; None for zeros.
        fault: Why its initial bytes are unknown: then a kernel that uses it cannot run. Else empty.
        symbols: If they are unknown, its initial values as written.
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

    Names are unique in it: those declared in a nested scope end with `#` and a number.

    Attributes:
        name: Its name.
        parameters: The formal parameters.
        variables: The variables of the body, with the `.param` variables of its calls.
        registers: PTX types of the registers, by name.
        instructions: The body.
        labels: Position of the instruction behind each label, by name.
        results: The return values of a function.
        file: Number of the source file that its lines refer to.
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
    """The declarations of one PTX text.

    Attributes:
        variables: The module's variables.
        entries: The kernels, by name.
        functions: The functions with a body, by name.
        digest: The SHA-256 of the text, in hexadecimal, and whose lines it has.
    """

    variables: tuple[Variable, ...]
    entries: Mapping[str, PtxFunction]
    functions: Mapping[str, PtxFunction] = field(default_factory=dict)
    digest: str = ""


_LARGEST_OFFSET = 2**62 - 1  # the sum of two is still a signed 64-bit number
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
_POINTED_TO = re.compile(r"\.ptr(\s+\.(global|const|shared|local))?(\s+\.align\s+\d+)?\s")
"""`.ptr .align 1` describes what a pointer points to, not the parameter itself."""
_WITHOUT_EFFECT = (".attribute", ".v2", ".v4", ".global", ".const", ".shared", ".local")
"""Words in a declaration; `.attribute(.managed)` says where the memory is."""
_DECLARATOR = re.compile(r"([%$\w]+)\s*((?:\[[^\]]*\]\s*)*)(?:=\s*(.*))?$", re.S)


def parse_ptx(text: str, own_lines: bool = False) -> Module:
    """Parse a PTX module.

    Args:
        text: The PTX, from NVRTC or written by hand.
        own_lines: Whether the source lines are those of the PTX, and not those that `.loc` names.

    Raises:
        PtxError: The text cannot be parsed; the message names the line.
    """
    line = 1

    def statements() -> Iterator[tuple[int, str]]:
        nonlocal line
        for number, statement in _statements(text):
            line = number
            yield number, statement

    try:
        module = _module(statements())
    except (ValueError, LookupError, StopIteration, RecursionError) as error:
        # For example a malformed number, a list that ends too soon, or too many braces.
        raise PtxError(f"PTX line {line}: not understood") from error
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    if not own_lines:
        return replace(module, digest=digest)
    return replace(
        module,
        entries={name: _with_own_lines(each) for name, each in module.entries.items()},
        functions={name: _with_own_lines(each) for name, each in module.functions.items()},
        digest=f"{digest} own lines",
    )


def _with_own_lines(function: PtxFunction) -> PtxFunction:
    instructions = (replace(each, source_line=each.ptx_line) for each in function.instructions)
    return replace(function, instructions=tuple(instructions), file="")


_PASSED_OVER = (".target", ".address_size", ".file", ".section", ".pragma", ".loc", "}")
"""Statements of a module that change nothing here."""


def _module(statements: Iterator[tuple[int, str]]) -> Module:
    is_ptx = False
    variables: list[Variable] = []
    entries: dict[str, PtxFunction] = {}
    functions: dict[str, PtxFunction] = {}
    for line, statement in statements:
        if statement.startswith(".version"):
            is_ptx = True
        elif match := _HEADER.match(statement):
            kind, results, name, parameters = match.groups()
            if statement.endswith("{"):
                entry = _entry(name, parameters or "", results or "", statements, line)
                (entries if kind == "entry" else functions)[name] = entry
        elif _VARIABLE.match(statement):
            variables.extend(_variables(statement, line))
        elif statement.startswith(_PASSED_OVER):
            continue
        else:
            raise PtxError(f"PTX line {line}: not understood: {statement[:60]}")
    if not is_ptx:
        raise PtxError("not PTX: there is no .version directive")
    resolved = tuple(_with_function_addresses(variable, functions) for variable in variables)
    return Module(resolved, entries, functions)


def function_address(name: str) -> int:
    """The number used as the address of a function, by which indirect calls select it."""
    return 0x7A00_0000_0000 + 16 * zlib.crc32(name.encode())


def _with_function_addresses(variable: Variable, functions: Mapping[str, PtxFunction]) -> Variable:
    """Initialize a variable whose initial values are addresses of functions and integers."""
    names = variable.symbols
    if not names or not all(name in functions or _INTEGER.match(name) for name in names):
        return variable
    words = [function_address(n) if n in functions else int(n.rstrip("U"), 0) for n in names]
    return replace(variable, initial=_initial_bytes(variable, words), fault="")


def registers_of(operand: Operand) -> Iterator[str]:
    """The registers that an operand names."""
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Negated):
        yield operand.register.name
    elif isinstance(operand, Address):
        if isinstance(operand.base, Register):
            yield operand.base.name
    elif isinstance(operand, DestinationPair):
        yield from registers_of(operand.first)
        yield from registers_of(operand.second)
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from registers_of(item)


def rename_operands(
    instruction: Instruction, names: Mapping[str, str], registers: Mapping[str, str]
) -> Instruction:
    """A copy of an instruction with other names for registers, variables and labels.

    Args:
        instruction: The instruction.
        names: New names by old name; other names stay.
        registers: The registers by new name. Inline assembly declares registers without `%`, which
            only this distinguishes from symbols.
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

    The time is linear in the length of the text: a kernel may have megabytes.
    """
    pieces: list[str] = []  # of a statement that spans lines
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
        position = 0
        while position < len(line):
            if not pieces:
                start = number
                label = _LABEL.match(line, position)
                if label:
                    yield number, label[1] + ":"
                    position = _skip_blanks(line, label.end())
                    continue
            # A brace stands alone (a scope), ends a header, or belongs to a vector or initializer.
            scope = line[position] in "{}" and not pieces
            if len(pieces) < _HEADER_PIECES:
                beginning = "".join(pieces) + line[position : position + _HEADER_CHARACTERS]
                header = _HEADER_START.match(beginning) is not None
            end = (_BRACE if scope else _HEADER_END if header else _END).search(line, position)
            if end is None:
                pieces.append(line[position:] + " ")
                break
            pieces.append(line[position : end.start()] + ("" if end[0] == ";" else end[0]))
            statement = "".join(pieces).strip()
            pieces, position = [], _skip_blanks(line, end.end())
            if statement:
                yield start, statement
    if pieces:
        raise PtxError(f"PTX line {start}: unfinished statement: {''.join(pieces)[:60]}")


_HEADER_PIECES = 8  # lines that are searched for the beginning of a header
_HEADER_CHARACTERS = 200  # characters of a line that are searched for it
_HEADER_START = re.compile(r"(?:\.(?:visible|weak|extern)\s+)*\.(?:entry|func)\b")
_BRACE, _HEADER_END, _END = re.compile(r"[{}]"), re.compile(r"[;{]"), re.compile(";")
_BLANKS = re.compile(r"\s*")


def _skip_blanks(line: str, position: int) -> int:
    """The position of the next character that is not a blank."""
    blanks = _BLANKS.match(line, position)
    assert blanks is not None
    return blanks.end()


def _without_comments(text: str) -> str:
    """The text with blanks in place of `/* … */`; line numbers stay the same."""
    kept, position = [], 0
    while (start := text.find("/*", position)) >= 0 and (end := text.find("*/", start + 2)) >= 0:
        kept += [text[position:start], re.sub(r"[^\n]", " ", text[start : end + 2])]
        position = end + 2
    return "".join(kept) + text[position:]


@dataclass
class _BodyBuilder:
    """The parts of a function body that is being parsed."""

    variables: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    jump_tables: dict[str, Vector] = field(default_factory=dict)
    scopes: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    scopes_seen: int = 0

    def open(self) -> None:
        """Enter a scope, noting its first instruction and, later, the names declared in it."""
        self.scopes.append((len(self.instructions), {}))
        self.scopes_seen += 1

    def close(self) -> None:
        """Leave a scope, and give its instructions the unique names."""
        start, names = self.scopes.pop()
        for index in range(start, len(self.instructions) if names else start):
            self.instructions[index] = rename_operands(
                self.instructions[index], names, self.registers
            )

    def unique(self, name: str) -> str:
        """The unique name for a name that the innermost scope declares."""
        if len(self.scopes) > 1:
            self.scopes[-1][1][name] = f"{name}#{self.scopes_seen}"
            return f"{name}#{self.scopes_seen}"
        if not name.startswith(("%", "$")):
            self.scopes[-1][1][name] = name  # distinguishes a register from a symbol
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
    lines: dict[tuple[str | Any, ...], int] = {}  # line in the body's own file, by .loc position
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
                own_line = int(match[2])
            elif match[4] == file:  # inlined from a header: the line that called it
                own_line = int(match[5] or 0)
            else:
                own_line = lines.get(match.groups()[3:], 0)
            lines[match.groups()[:3]] = own_line
            source_line = own_line or source_line
        elif statement.startswith(".reg"):
            body.registers.update(
                (body.unique(register), kind) for register, kind in _registers(statement, line)
            )
        elif statement.endswith(":"):
            body.labels[body.unique(statement[:-1])] = len(body.instructions)
        elif statement.startswith(".branchtargets"):
            table = next(reversed(body.labels))
            body.jump_tables[table] = Vector(tuple(map(Symbol, _split_operands(statement[14:]))))
        elif _VARIABLE.match(statement):
            body.variables.extend(
                replace(variable, name=body.unique(variable.name))
                for variable in _variables(statement, line)
            )
        elif statement.startswith("."):
            continue  # .pragma, .maxntid and the like change no results
        else:
            body.instructions.append(_instruction(statement, line, source_line))
    raise PtxError(f"PTX line {first_line}: the body of {name} has no end")


def _parameter_variables(parameters: str, line: int) -> Iterator[Variable]:
    for text in parameters.split(","):
        if text.strip():
            yield from _variables(text.strip(), line)


def _with_jump_targets(body: _BodyBuilder) -> Iterator[Instruction]:
    """Yield the instructions, with the labels of a jump table in place of its name."""
    for instruction in body.instructions:
        operands = instruction.operands
        last = operands[-1] if operands else None
        if isinstance(last, Symbol) and last.name in body.jump_tables:
            yield replace(instruction, operands=(*operands[:-1], body.jump_tables[last.name]))
        else:
            yield instruction


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
    words = _POINTED_TO.sub("", rest).split()
    while words and words[0].startswith("."):
        word = words.pop(0)
        if word == ".align":
            align = int(words.pop(0))
        elif word[1:] in TYPE_BYTES:
            type_name = word[1:]
        elif not word.startswith(_WITHOUT_EFFECT):
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
    values = tuple(filter(None, map(str.strip, re.sub(r"[{}]", " ", initial or "").split(","))))
    if not initial:
        return [variable]
    literals = [(value, _literal(value)) for value in values]
    other = next((value for value, literal in literals if literal is None), None)
    if other is not None:  # the kernel that runs may not use it
        fault = (
            f"PTX line {line}: {name} is initialized with {other[:40]}, which is no number; the "
            "emulator knows addresses of functions and variables only in kernels: set it there"
        )
        return [replace(variable, fault=fault, symbols=values)]
    elements = [literal.bits for _, literal in literals if literal is not None]
    return [replace(variable, initial=_initial_bytes(variable, elements))]


def _initial_bytes(variable: Variable, words: Sequence[int]) -> bytes:
    """The bytes of a variable with initial elements, and zeros behind them."""
    width = TYPE_BYTES[variable.type]
    initial = b"".join((word % (1 << 8 * width)).to_bytes(width, "little") for word in words)
    return initial.ljust(variable.size, b"\0")


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
        if any(item.startswith(("{", "(")) for item in items):
            raise PtxError(f"PTX line {line}: a vector within a vector: {text[:40]}")
        return Vector(tuple(_operand(item, line) for item in items))
    if text.startswith("["):
        match = _ADDRESS.match(text)
        if match is None and "," in text:  # a texture or tensor with its coordinates
            return Vector(tuple(_operand(item, line) for item in _split_operands(text[1:-1])))
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
