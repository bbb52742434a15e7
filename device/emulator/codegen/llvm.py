"""LLVM: from a module under construction to object code, and from object code to functions."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from llvmlite import binding, ir

from memlab.device.compiler.cache import hash_groups, load_parts, store_parts

if TYPE_CHECKING:
    from memlab.device.emulator.codegen.compiled import Compiled

EMULATOR = Path(__file__).parents[1]
"""The folder of the emulator, whose source files decide which code is made."""

_LIBRARY_NUMBERS = itertools.count()
_COMPILING = RLock()


@cache
def target_machine(optimization: int) -> binding.TargetMachine:
    """Code generation for this CPU.

    Args:
        optimization: LLVM's level, 0 to 3.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=optimization,
        reloc="default",
        codemodel="jitdefault",
        jit=True,
    )


@cache
def describe_target() -> str:
    """LLVM's version, and the CPU that it generates code for, as the key of a cache."""
    version = ".".join(map(str, binding.llvm_version_info))
    features = binding.get_host_cpu_features().flatten()
    return f"LLVM {version} {binding.get_host_cpu_name()} {features}"


def compile_module(module: ir.Module, optimization: int = 2, passes: Sequence[str] = ()) -> bytes:
    """Optimize a module and compile it to object code.

    Args:
        module: The module.
        optimization: LLVM's level, 0 to 3, of the passes and of code generation.
        passes: The only passes to run, by llvmlite's names; without any, those of the level.
    """
    machine = target_machine(optimization)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    parsed = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=optimization)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = binding.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    if passes:
        manager = binding.create_new_module_pass_manager()
        for name in passes:
            getattr(manager, f"add_{name}_pass")()
    manager.run(parsed, builder)
    return bytes(machine.emit_object(parsed))


class Library:
    """Loaded object code.

    Attributes:
        addresses: The addresses of its functions, by name.
    """

    def __init__(
        self,
        codes: Iterable[bytes],
        names: Iterable[str],
        imported: Mapping[str, int] | None = None,
    ) -> None:
        """Load object code.

        Args:
            codes: The object code of each module.
            names: The functions that they define.
            imported: Addresses of functions that they may call.
        """
        library = binding.JITLibraryBuilder().add_current_process()
        for code in codes:
            library.add_object_img(code)
        for name, address in (imported or {}).items():
            library.import_symbol(name, address)
        for name in names:
            library.export_symbol(name)
        # The code lives as long as the tracker.
        self._tracker = library.link(_jit(), f"memlab{next(_LIBRARY_NUMBERS)}")
        self.addresses: Mapping[str, int] = {name: self._tracker[name] for name in names}

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function as a Python callable that releases the global interpreter lock.

        Args:
            name: Its name.
            result: The `ctypes` type of its result, or None.
            *arguments: The `ctypes` types of its arguments.
        """
        return ctypes.CFUNCTYPE(result, *arguments)(self.addresses[name])


def source_digest(*folders: Path) -> str:
    """A hash of the source files in folders and below."""
    return hash_groups([[*map(_folder_digest, folders)]])


@cache
def _folder_digest(folder: Path) -> str:
    return hash_groups([[path.read_bytes() for path in sorted(folder.rglob("*.py"))]])


def library_of(name: str, folder: Path, *functions: Any) -> Library:
    """The machine code of functions, which is kept in the cache of compilations.

    Threads that ask at the same time wait for each other.

    Args:
        name: The name of their module.
        folder: The source files, besides those of `codegen` and `isa`, that they are made of.
        functions: The functions that others call.
    """
    with _COMPILING:
        return _library_of(name, folder, *functions)


@cache
def _library_of(name: str, folder: Path, *functions: Compiled[Any]) -> Library:
    digest = source_digest(EMULATOR / "codegen", EMULATOR / "isa", folder)
    key = hash_groups([(digest, describe_target(), name)])
    codes = load_parts(key)
    if codes is None:
        module = ir.Module(f"memlab_{name}")
        for function in functions:
            function.declared(module)
        codes = [compile_module(module)]
        store_parts(key, codes)
    return Library(codes, [function.name for function in functions])


@cache
def _jit() -> binding.LLJIT:
    return binding.create_lljit_compiler(target_machine(2))
