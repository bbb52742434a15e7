"""The syntax of host code: its functions, kernels, types and constants, found by tree-sitter.

The grammar is tolerant: what it does not know, such as a macro in an odd place, becomes an error
node, and the rest is read all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from memlab.kernels.host_code.values import CType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tree_sitter import Node, Parser

    from memlab.kernels.host_code.preprocessor import Macro, Preprocessed

_WORD_SIZES = {
    **dict.fromkeys(("char", "bool", "int8_t", "uint8_t", "uchar", "byte", "__nv_fp8_e4m3"), 1),
    **dict.fromkeys(("short", "ushort", "int16_t", "uint16_t", "half", "__half"), 2),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16", "wchar_t"), 2),
    **dict.fromkeys(("int", "uint", "unsigned", "float", "int32_t", "uint32_t", "half2"), 4),
    **dict.fromkeys(("__half2", "__nv_bfloat162"), 4),
    **dict.fromkeys(("long", "ulong", "double", "int64_t", "uint64_t", "size_t", "ssize_t"), 8),
    **dict.fromkeys(("longlong", "ulonglong", "ptrdiff_t", "intptr_t", "uintptr_t", "clock_t"), 8),
    **dict.fromkeys(("cuComplex", "cuFloatComplex", "cufftComplex", "cudaStream_t"), 8),
    **dict.fromkeys(("cuDoubleComplex", "cufftDoubleComplex"), 16),
    **dict.fromkeys(("curandState", "curandState_t", "curandStateXORWOW"), 48),
}
_VECTOR = re.compile(
    r"(u?(?:char|short|int|long|longlong)|float|double)([1-4])"  # float4, uchar3
)
_LITERAL_TYPES = re.compile(r"unsigned|signed|long|short|int|char|double|float")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: its name, type, whether it is a reference, and its default."""

    name: str
    type: CType
    is_reference: bool = False
    default: Node | None = None


@dataclass(frozen=True)
class TemplateParameter:
    """A parameter of a template; `type` is None for a type."""

    name: str
    type: CType | None
    default: Node | None = None


@dataclass(frozen=True)
class Function:
    """A function or kernel that the program defines.

    Attributes:
        name: Its name with its namespaces.
        node: The definition.
        body: Its body.
        parameters: Its parameters.
        template: The parameters of its template; None for a function that is none.
        is_kernel: Whether it is `__global__`.
        source_name: Its file.
        owner: The class of a method.
    """

    name: str
    node: Node
    body: Node
    parameters: tuple[Parameter, ...]
    template: tuple[TemplateParameter, ...] | None
    is_kernel: bool
    source_name: str
    owner: str = ""


@dataclass
class Program:
    """The host code of a file with its own headers.

    Attributes:
        macros: The macros, by name.
        functions: The functions, by their last name, without kernels.
        kernels: The kernels, likewise.
        declarations: The declarations of variables outside functions, in order.
        structures: The bodies of structures and classes, by name.
        types: The aliases of types, by name.
        enumerators: The nodes of enumerators that have values, and those before them.
        launching: The names of functions that launch kernels, directly or through others.
    """

    macros: dict[str, Macro]
    functions: dict[str, list[Function]] = field(default_factory=dict)
    kernels: dict[str, list[Function]] = field(default_factory=dict)
    declarations: list[Node] = field(default_factory=list)
    structures: dict[str, Node] = field(default_factory=dict)
    types: dict[str, CType] = field(default_factory=dict)
    enumerators: list[tuple[str, Node | None, bool]] = field(default_factory=list)
    launching: frozenset[str] = frozenset()

    def resolved_type(self, kind: CType, depth: int = 0) -> CType:
        """A type without aliases and macros."""
        if depth > 10:
            return kind
        known = self.types.get(kind.name)
        if known is None and kind.name in self.macros:
            text = self.macros[kind.name].text
            known = spelled_type(text) if self.macros[kind.name].parameters is None else None
        if known is None or known.name == kind.name:
            return kind
        return self.resolved_type(CType(known.name, known.pointers + kind.pointers), depth + 1)

    def size_of(self, kind: CType, depth: int = 0) -> int | None:
        """The size of a type, bytes; None if it is not known."""
        return self._layout(self.resolved_type(kind), depth)[0]

    def _layout(self, kind: CType, depth: int) -> tuple[int | None, int]:
        """The size and alignment of a type."""
        if kind.pointers:
            return 8, 8
        if kind.name in _WORD_SIZES:
            return _WORD_SIZES[kind.name], _WORD_SIZES[kind.name]
        if match := _VECTOR.fullmatch(kind.name):
            word, lanes = _WORD_SIZES[match[1]], int(match[2])
            return word * lanes, word * (lanes if lanes != 3 else 1)
        body = self.structures.get(kind.name)
        if body is None or depth > 8:
            return None, 1
        end, widest = 0, 1
        for member in body.named_children:
            if member.type == "field_declaration":
                for each, alignment, count in self._member_sizes(member, depth):
                    if each is None or count is None:
                        return None, 1
                    widest = max(widest, alignment)
                    end = -(-end // alignment) * alignment + each * count
            elif member.type == "base_class_clause":
                return None, 1
        return max(-(-end // widest) * widest, 1), widest

    def _member_sizes(
        self, member: Node, depth: int
    ) -> Iterator[tuple[int | None, int, int | None]]:
        base = node_type(member.child_by_field_name("type"))
        for declarator in member.children_by_field_name("declarator"):
            name = declared(declarator, base)
            if name is None:
                continue
            count: int | None = 1
            for extent in name.extents:
                value = None if extent is None else literal(self.expanded(text_of(extent)))
                count = None if value is None or count is None else count * value
            size, alignment = self._layout(self.resolved_type(name.type), depth + 1)
            yield size, alignment, count

    def expanded(self, name: str) -> str:
        """The text of a macro without parameters, or the name itself."""
        for _ in range(10):
            macro = self.macros.get(name)
            if macro is None or macro.parameters is not None:
                break
            name = macro.text.strip("() ")
        return name

    def launches_inside(self, node: Node) -> bool:
        """Whether a statement launches a kernel, itself or through the functions that it names."""
        return any(
            each.type == "kernel_call_syntax"
            or (each.type in ("identifier", "field_identifier") and text_of(each) in self.launching)
            for each in descendants(node)
        )


@dataclass(frozen=True)
class Declared:
    """What a declarator declares.

    Attributes:
        name: The name.
        type: The type, with its pointers.
        extents: The extents of an array; None for one without a number.
        is_reference: Whether it is a reference.
        arguments: The parameter list of a declarator such as `v(n)`, which may be a constructor's
            arguments.
    """

    name: str
    type: CType
    extents: tuple[Node | None, ...] = ()
    is_reference: bool = False
    arguments: Node | None = None


@cache
def parser() -> Parser:
    """The parser of CUDA C++."""
    import tree_sitter_cuda
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_cuda.language()))


def text_of(node: Node | None) -> str:
    """The text of a node."""
    return "" if node is None or node.text is None else node.text.decode(errors="replace")


def descendants(node: Node) -> Iterator[Node]:
    """A node and all below it, in order."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(reversed(each.named_children))


@cache
def parse_expression(text: str) -> Node | None:
    """The syntax of an expression, such as a macro's text; None if it is none."""
    tree = parser().parse(f"void f(){{ return {text}; }}".encode())
    statement = _first_statement(tree.root_node)
    if statement is None or tree.root_node.has_error or statement.type != "return_statement":
        return None
    return next(iter(statement.named_children), None)


@cache
def parse_statements(text: str) -> Node | None:
    """The syntax of statements, such as a macro's text; None if it is none."""
    tree = parser().parse(f"void f(){{ {text}; }}".encode())
    function = next(iter(tree.root_node.named_children), None)
    return None if function is None else function.child_by_field_name("body")


def _first_statement(root: Node) -> Node | None:
    function = next(iter(root.named_children), None)
    body = None if function is None else function.child_by_field_name("body")
    return None if body is None else next(iter(body.named_children), None)


def literal(text: str) -> int | None:
    """A whole number as C++ writes it."""
    digits = text.replace("'", "").rstrip("uUlL")
    try:
        if re.fullmatch(r"0[0-7]+", digits):
            return int(digits, 8)
        return int(digits, 0)
    except ValueError:
        return None


def spelled_type(text: str) -> CType | None:
    """A type as it is spelled: `const unsigned int *`."""
    pointers = text.count("*")
    words = re.sub(r"[*&]|\b(?:const|volatile|__restrict__|struct|class|typename)\b", " ", text)
    name = _plain_name(words)
    return CType(name, pointers) if name else None


def node_type(node: Node | None) -> CType:
    """The type that a type's node names, without its declarator."""
    if node is None:
        return CType("")
    if node.type == "type_descriptor":
        base = node_type(node.child_by_field_name("type"))
        declarator = node.child_by_field_name("declarator")
        pointers = text_of(declarator).count("*") if declarator is not None else 0
        return CType(base.name, base.pointers + pointers)
    if node.type in ("struct_specifier", "class_specifier", "enum_specifier"):
        return CType(text_of(node.child_by_field_name("name")))
    return CType(_plain_name(text_of(node)))


def _plain_name(text: str) -> str:
    """A type's name in one spelling: `unsigned int` is `uint`."""
    name = " ".join(text.split()).removeprefix("std::").removeprefix("::")
    words = name.split()
    if not words or not all(map(_LITERAL_TYPES.fullmatch, words)):
        return name.removeprefix("struct ").removeprefix("typename ")
    unsigned = "u" if "unsigned" in words else ""
    if "double" in words or "float" in words:
        return "double" if "double" in words else "float"
    for kind in ("char", "short"):
        if kind in words:
            return unsigned + kind
    return unsigned + {0: "int", 1: "long"}.get(words.count("long"), "longlong")


def declared(node: Node | None, base: CType) -> Declared | None:
    """Read a declarator; None if it declares no variable.

    Args:
        node: The declarator.
        base: The type before it.
    """
    extents: list[Node | None] = []
    arguments, is_reference = None, False
    kind = base
    while node is not None:
        if node.type in ("identifier", "field_identifier", "type_identifier"):
            return Declared(text_of(node), kind, tuple(extents), is_reference, arguments)
        if node.type in ("pointer_declarator", "abstract_pointer_declarator"):
            kind = CType(kind.name, kind.pointers + 1)
        elif node.type in ("reference_declarator",):
            is_reference = True
        elif node.type == "array_declarator":
            extents.insert(0, node.child_by_field_name("size"))
        elif node.type == "function_declarator":
            arguments = node.child_by_field_name("parameters")
        elif node.type == "qualified_identifier":
            return Declared(text_of(node), kind, tuple(extents), is_reference, arguments)
        elif node.type not in (
            "init_declarator",
            "parenthesized_declarator",
            "attributed_declarator",
        ):
            return None
        inner = node.child_by_field_name("declarator")
        node = inner or next(
            (
                child
                for child in node.named_children
                if child.type.endswith(("declarator", "identifier"))
            ),
            None,
        )
    return None


def read_program(preprocessed: Preprocessed) -> Program:
    """Find what a source and its headers define."""
    program = Program(preprocessed.macros)
    for source in preprocessed.texts:
        root = parser().parse(source.text.encode(errors="replace")).root_node
        _collect(root, program, source.name, (), None)
    program.launching = _launching_functions(program)
    return program


def _collect(
    node: Node,
    program: Program,
    source_name: str,
    scope: Sequence[str],
    template: tuple[TemplateParameter, ...] | None,
    owner: str = "",
) -> None:
    for child in node.children:
        kind = child.type
        if kind == "template_declaration":
            parameters = _template_parameters(child.child_by_field_name("parameters"))
            _collect(child, program, source_name, scope, parameters, owner)
        elif kind == "function_definition":
            _add_function(child, program, source_name, scope, template, owner)
        elif kind == "namespace_definition":
            name = text_of(child.child_by_field_name("name"))
            body = child.child_by_field_name("body")
            if body is not None:
                inner = (*scope, name) if name else scope
                _collect(body, program, source_name, inner, None, owner)
        elif kind in ("linkage_specification", "declaration_list", "ERROR"):
            _collect(child, program, source_name, scope, template, owner)
        elif kind == "declaration" and not owner:
            _collect_types(child, program, source_name, scope)
            program.declarations.append(child)
        elif kind == "type_definition":
            _collect_types(child, program, source_name, scope)
            base = node_type(child.child_by_field_name("type"))
            for declarator in child.children_by_field_name("declarator"):
                alias = declared(declarator, base)
                if alias is None:
                    continue
                body = _body_of_type(child)
                if body is not None and not base.name:
                    program.structures[alias.name] = body
                else:
                    program.types[alias.name] = alias.type
        elif kind == "alias_declaration":
            name = text_of(child.child_by_field_name("name"))
            program.types[name] = node_type(child.child_by_field_name("type"))
        elif kind in ("struct_specifier", "class_specifier", "enum_specifier", "union_specifier"):
            _collect_type(child, program, source_name, scope)


def _collect_types(node: Node, program: Program, source_name: str, scope: Sequence[str]) -> None:
    kind = node.child_by_field_name("type")
    if kind is not None:
        _collect_type(kind, program, source_name, scope)


def _collect_type(node: Node, program: Program, source_name: str, scope: Sequence[str]) -> None:
    body = node.child_by_field_name("body")
    if body is None:
        return
    name = text_of(node.child_by_field_name("name"))
    if node.type == "enum_specifier":
        first = True
        for each in body.named_children:
            if each.type == "enumerator":
                value = each.child_by_field_name("value")
                enumerator = text_of(each.child_by_field_name("name"))
                program.enumerators.append((enumerator, value, first))
                first = False
        if name:
            program.types[name] = CType("int")
    elif node.type in ("struct_specifier", "class_specifier"):
        if name:
            program.structures[name] = body
        _collect(body, program, source_name, scope, None, name or "class")


def _body_of_type(node: Node) -> Node | None:
    kind = node.child_by_field_name("type")
    if kind is None or kind.type != "struct_specifier":
        return None
    return kind.child_by_field_name("body")


def _template_parameters(node: Node | None) -> tuple[TemplateParameter, ...]:
    listed = []
    for child in node.named_children if node is not None else ():
        if child.type in ("type_parameter_declaration", "optional_type_parameter_declaration"):
            name = next((each for each in child.named_children if "identifier" in each.type), None)
            default = child.child_by_field_name("default_type")
            listed.append(TemplateParameter(text_of(name), None, default))
        elif child.type in ("parameter_declaration", "optional_parameter_declaration"):
            base = node_type(child.child_by_field_name("type"))
            name = child.child_by_field_name("declarator")
            default = child.child_by_field_name("default_value")
            listed.append(TemplateParameter(text_of(name), base, default))
        elif child.type == "variadic_type_parameter_declaration":
            listed.append(TemplateParameter("...", None))
    return tuple(listed)


def _add_function(
    node: Node,
    program: Program,
    source_name: str,
    scope: Sequence[str],
    template: tuple[TemplateParameter, ...] | None,
    owner: str,
) -> None:
    body = node.child_by_field_name("body")
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or next(
            (each for each in declarator.named_children if each.type.endswith("declarator")), None
        )
    if body is None or declarator is None:
        return
    name = text_of(declarator.child_by_field_name("declarator"))
    qualifier, _, last = name.rpartition("::")
    is_kernel = any(child.type == "__global__" for child in node.children) or (
        "__global__" in text_of(node)[: declarator.start_byte - node.start_byte]
    )
    function = Function(
        "::".join([*scope, name]),
        node,
        body,
        tuple(_parameters(declarator.child_by_field_name("parameters"))),
        template,
        is_kernel,
        source_name,
        owner or (qualifier if qualifier in program.structures else ""),
    )
    (program.kernels if is_kernel else program.functions).setdefault(last, []).append(function)


def _parameters(node: Node | None) -> Iterator[Parameter]:
    for child in node.named_children if node is not None else ():
        if child.type not in ("parameter_declaration", "optional_parameter_declaration"):
            continue
        base = node_type(child.child_by_field_name("type"))
        declarator = child.child_by_field_name("declarator")
        name = declared(declarator, base)
        if name is None:
            pointers = text_of(declarator).count("*") if declarator is not None else 0
            if base.name != "void" or pointers:
                yield Parameter("", CType(base.name, base.pointers + pointers))
            continue
        kind = CType(name.type.name, name.type.pointers + bool(name.extents))
        default = child.child_by_field_name("default_value")
        yield Parameter(name.name, kind, name.is_reference, default)


def _launching_functions(program: Program) -> frozenset[str]:
    called: dict[str, set[str]] = {}
    launching: set[str] = set()
    for name, functions in program.functions.items():
        for function in functions:
            words = called.setdefault(name, set())
            for node in descendants(function.body):
                if node.type in ("identifier", "field_identifier"):
                    words.add(text_of(node))
                elif node.type == "kernel_call_syntax":
                    launching.add(name)
    for name, macro in program.macros.items():
        if "<<<" in macro.text:
            launching.add(name)
        called.setdefault(name, set()).update(re.findall(r"\w+", macro.text))
    while True:
        more = {name for name, words in called.items() if words & launching} - launching
        if not more:
            return frozenset(launching)
        launching |= more
