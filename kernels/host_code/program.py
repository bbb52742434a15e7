"""The syntax of host code: its functions, kernels, types and constants, found by tree-sitter.

The grammar is tolerant: what it does not know, such as a macro in an odd place, becomes an error
node, and the rest is read all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from memlab.kernels.host_code.values import CType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tree_sitter import Node, Parser

    from memlab.kernels.host_code.preprocessor import Macro, Preprocessed

MAX_CACHED = 1024
"""The most texts of macros whose syntax is kept."""
_CLUSTER_DIMS = re.compile(r"\b__cluster_dims__\s*\((?:[^()]|\([^()]*\))*\)")
_LITERAL_TYPES = re.compile(r"unsigned|signed|long|short|int|char|double|float")


_WRITTEN = {
    **{f"u{kind}": f"unsigned {kind}" for kind in ("char", "short", "int", "long")},
    "longlong": "long long",
    "ulonglong": "unsigned long long",
}
LAUNCH_CALLS = frozenset(
    {
        "cudaLaunchKernel",
        "cudaLaunchCooperativeKernel",
        "cudaLaunchKernelEx",
        "cudaLaunchKernelExC",
    }
)
"""The functions of CUDA's runtime that launch a kernel."""
NAME_NODES = ("identifier", "field_identifier")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        name: Its name.
        type: Its type.
        is_reference: Whether it is a reference.
        default: Its default value.
        is_const: Whether what it holds, or points to, is const.
    """

    name: str
    type: CType
    is_reference: bool = False
    default: Node | None = None
    is_const: bool = False


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


@dataclass(frozen=True)
class Instantiation:
    """An explicit instantiation of a function template.

    Attributes:
        name: The function's name.
        template: The list of its template arguments; None without any.
        parameters: Its parameters.
    """

    name: str
    template: Node | None
    parameters: tuple[Parameter, ...]


@dataclass
class Program:
    """The host code of a file with its own headers.

    Attributes:
        macros: The macros, by name.
        functions: The functions, by their last name, without kernels.
        kernels: The kernels, likewise.
        declarations: The declarations of variables outside functions, in order, each behind its
            namespace.
        structures: The bodies of structures and classes, by name, without and with namespaces.
        types: The aliases of types, by name.
        enumerators: The nodes of enumerators that have values, and those before them.
        class_templates: The parameters of the templates of classes, by the classes' names, such as
            `Pair`; of a partial specialization with its arguments, `Pair<T,1>`.
        enumerations: The names of the types of enumerators.
        layouts: The sizes and alignments of structures, by their bodies and template arguments.
        prototypes: The parameters of declared functions, by their last name.
        instantiations: The explicit instantiations of function templates, in order.
        with_launches: Whether statements launch kernels, of those that were asked for.
        launching: The names of functions that launch kernels, directly or through others.
    """

    macros: dict[str, Macro]
    functions: dict[str, list[Function]] = field(default_factory=dict)
    kernels: dict[str, list[Function]] = field(default_factory=dict)
    declarations: list[tuple[str, Node]] = field(default_factory=list)
    structures: dict[str, Node] = field(default_factory=dict)
    types: dict[str, CType] = field(default_factory=dict)
    enumerators: list[tuple[str, Node | None, bool]] = field(default_factory=list)
    class_templates: dict[str, tuple[TemplateParameter, ...]] = field(default_factory=dict)
    enumerations: set[str] = field(default_factory=set)
    layouts: dict[object, tuple[int | None, int]] = field(default_factory=dict)
    prototypes: dict[str, list[tuple[Parameter, ...]]] = field(default_factory=dict)
    instantiations: list[Instantiation] = field(default_factory=list)
    with_launches: dict[Node, bool] = field(default_factory=dict)
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
        return self.resolved_type(
            CType(known.name, known.pointers + kind.pointers, kind.extents), depth + 1
        )

    def launches_inside(self, node: Node) -> bool:
        """Whether a statement launches a kernel, itself or through the functions that it names."""
        if node not in self.with_launches:
            self.with_launches[node] = any(
                each.type == "kernel_call_syntax"
                or (each.type in NAME_NODES and text_of(each) in self.launching)
                for each in descendants(node)
            )
        return self.with_launches[node]


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


@lru_cache(MAX_CACHED)
def parse_expression(text: str) -> Node | None:
    """The syntax of an expression, such as a macro's text; None if it is none."""
    tree = parser().parse(f"void f(){{ return {text}; }}".encode())
    statement = _first_statement(tree.root_node)
    if statement is None or tree.root_node.has_error or statement.type != "return_statement":
        return None
    return next(iter(statement.named_children), None)


@lru_cache(MAX_CACHED)
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
    head, _, rest = text.partition("<")
    inside, closing, tail = rest.rpartition(">")
    pointers = (head + tail).count("*") if closing else text.count("*")
    marks = r"[*&]|\b(?:const|volatile|__restrict__|struct|class|typename)\b"
    if closing:  # what stands between the brackets is that of other types
        words = f"{re.sub(marks, ' ', head).rstrip()}<{inside}>{re.sub(marks, ' ', tail)}"
    else:
        words = re.sub(marks, " ", text)
    name = _plain_name(words)
    return CType(name, pointers) if name else None


def written_type(kind: CType) -> str:
    """A type as C++ writes it, without aliases of the system's headers: `uint` is their word."""
    stars = " " * bool(kind.pointers) + "*" * kind.pointers
    return _WRITTEN.get(kind.name, kind.name) + stars


def split_template(name: str) -> tuple[str, list[str]]:
    """The name of a template and its arguments: `Pair<int, V<4>>` has two."""
    base, _, rest = name.partition("<")
    parts, depth = [""], 0
    for character in rest.strip().removesuffix(">"):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return base.strip(), [part.strip() for part in parts if part.strip()]


def split_member(name: str) -> tuple[str, str]:
    """What stands before and behind the last `::` that is in no argument of a template."""
    depth = 0
    for index in range(len(name) - 1, 0, -1):
        depth += (name[index] in ">)") - (name[index] in "<(")
        if depth == 0 and name[index - 1 : index + 1] == "::":
            return name[: index - 1], name[index + 1 :]
    return "", name


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
            inner = node.child_by_field_name("declarator")
            if inner is not None and inner.type == "parenthesized_declarator":
                kind = CType("", 1)  # a pointer to a function
            else:
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


def members(body: Node) -> Iterator[tuple[Declared, Node | None]]:
    """The variables of a class with their default values, from the class's body."""
    for member in body.named_children:
        if member.type != "field_declaration":
            continue
        base = node_type(member.child_by_field_name("type"))
        found: Declared | None = None
        default: Node | None = None
        for index, child in enumerate(member.children):
            field_name = member.field_name_for_child(index)
            if field_name == "declarator":
                if found is not None and found.arguments is None:
                    yield found, default
                found, default = declared(child, base), None
            elif field_name == "default_value":
                default = child
        if found is not None and found.arguments is None:
            yield found, default


def read_program(preprocessed: Preprocessed) -> Program:
    """Find what a source and its headers define."""
    program = Program(preprocessed.macros)
    for source in preprocessed.texts:
        text = re.sub(r"\b__align__\b", "alignas", source.text)  # which the grammar knows
        text = _CLUSTER_DIMS.sub(lambda each: re.sub(r"\S", " ", each[0]), text)  # unknown to it
        root = parser().parse(text.encode(errors="replace")).root_node
        _collect(root, program, source.name, (), None)
    for name, functions in program.functions.items():
        program.functions[name] = [_with_defaults(each, program) for each in functions]
    program.launching = _launching_functions(program)
    return program


def _with_defaults(function: Function, program: Program) -> Function:
    """A function with the default arguments that its declarations before it give."""
    parameters = function.parameters
    for declared_parameters in program.prototypes.get(function.name.rpartition("::")[2], ()):
        if [each.type for each in declared_parameters] == [each.type for each in parameters]:
            parameters = tuple(
                replace(own, default=own.default or other.default)
                for own, other in zip(parameters, declared_parameters, strict=True)
            )
    return replace(function, parameters=parameters)


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
        elif kind == "template_instantiation":
            _add_instantiation(child, program)
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
            if not _add_prototype(child, program):
                program.declarations.append(("::".join(scope), child))
        elif kind == "field_declaration":
            _collect_types(child, program, source_name, scope)
            _add_prototype(child, program)
        elif kind == "type_definition":
            _collect_types(child, program, source_name, scope)
            base = node_type(child.child_by_field_name("type"))
            for declarator in child.children_by_field_name("declarator"):
                alias = declared(declarator, base)
                if alias is None:
                    continue
                body = structure_body(child.child_by_field_name("type"))
                if body is not None and not base.name:
                    program.structures[alias.name] = body
                elif not _depends(owner, program):
                    program.types[alias.name] = alias.type
        elif kind == "alias_declaration" and template is None and not _depends(owner, program):
            name = text_of(child.child_by_field_name("name"))
            program.types[name] = node_type(child.child_by_field_name("type"))
        elif kind in ("struct_specifier", "class_specifier", "enum_specifier", "union_specifier"):
            _collect_type(child, program, source_name, scope, template)


def _depends(owner: str, program: Program) -> bool:
    """Whether the members of a class depend on arguments of a template."""
    return "<" in owner or owner in program.class_templates


def _collect_types(node: Node, program: Program, source_name: str, scope: Sequence[str]) -> None:
    kind = node.child_by_field_name("type")
    if kind is not None:
        _collect_type(kind, program, source_name, scope)


def _collect_type(
    node: Node,
    program: Program,
    source_name: str,
    scope: Sequence[str],
    template: tuple[TemplateParameter, ...] | None = None,
) -> None:
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
            base = node.child_by_field_name("base")
            program.types[name] = CType("int") if base is None else node_type(base)
            program.enumerations.add(name)
    elif node.type in ("struct_specifier", "class_specifier", "union_specifier"):
        if name:
            plain = re.sub(r"\s", "", name)
            for spelling in {plain, "::".join([*scope, plain])}:
                program.structures[spelling] = body
                if template:
                    program.class_templates[spelling] = template
        _collect(body, program, source_name, scope, None, name or "class")


def structure_body(kind: Node | None) -> Node | None:
    """The body of a structure that a type's node defines."""
    if kind is None or kind.type not in ("struct_specifier", "union_specifier"):
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


def _function_declarator(node: Node) -> Node | None:
    """The declarator of a function's name and parameters; None where a variable is declared."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type in (
        "pointer_declarator",
        "reference_declarator",
    ):
        declarator = declarator.child_by_field_name("declarator")
    is_function = declarator is not None and declarator.type == "function_declarator"
    return declarator if is_function else None


def _add_instantiation(node: Node, program: Program) -> None:
    declarator = _function_declarator(node)
    if declarator is None:
        return
    name = declarator.child_by_field_name("declarator")
    while name is not None and name.type == "qualified_identifier":
        name = name.child_by_field_name("name")
    template = None
    if name is not None and name.type == "template_function":
        template = name.child_by_field_name("arguments")
        name = name.child_by_field_name("name")
    parameters = tuple(_parameters(declarator.child_by_field_name("parameters")))
    program.instantiations.append(Instantiation(text_of(name), template, parameters))


def _add_prototype(node: Node, program: Program) -> bool:
    """Note the default arguments that a declaration of a function gives; False if there is none."""
    declarator = _function_declarator(node)
    if declarator is None:
        return False
    parameters = tuple(_parameters(declarator.child_by_field_name("parameters")))
    if not any(each.default is not None for each in parameters):
        return False
    name = text_of(declarator.child_by_field_name("declarator"))
    program.prototypes.setdefault(name, []).append(parameters)
    return True


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
        is_const = "const" in text_of(child).partition("*")[0].split()
        yield Parameter(name.name, kind, name.is_reference, default, is_const)


def names_in(node: Node) -> set[str]:
    """The names in a statement."""
    return {text_of(each) for each in descendants(node) if each.type in NAME_NODES}


def _launching_functions(program: Program) -> frozenset[str]:
    users: dict[str, set[str]] = {}
    launching: set[str] = set()
    for name, functions in program.functions.items():
        for function in functions:
            words = names_in(function.body)
            is_launch = any(n.type == "kernel_call_syntax" for n in descendants(function.body))
            names = {name, *filter(None, [function.owner])}  # an object calls its operators
            if is_launch or words & LAUNCH_CALLS:
                launching |= names
            for word in words:
                users.setdefault(word, set()).update(names)
    for name, macro in program.macros.items():
        words = set(re.findall(r"\w+", macro.text))
        if "<<<" in macro.text or words & LAUNCH_CALLS:
            launching.add(name)
        for word in words:
            users.setdefault(word, set()).add(name)
    waiting = list(launching)
    while waiting:
        more = users.get(waiting.pop(), set()) - launching
        launching |= more
        waiting += more
    return frozenset(launching)
