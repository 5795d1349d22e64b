"""The readers of the specification as modules: tests compare the library with them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

from pylogtable.storage.base import ObjectStore

_SPEC = Path(__file__).parents[1] / "format_spec"
LIGHT_READER = _SPEC / "light_reader.py"
REFERENCE_READER = _SPEC / "reference_reader.py"

Readers = tuple[ModuleType, ModuleType]


def reference_reader() -> ModuleType:
    """The full reader. All tests share it, so nobody changes anything in it."""
    return _shared()[1]


def light_reader() -> ModuleType:
    """The light reader, which the full one is built on."""
    return _shared()[0]


@cache
def _shared() -> Readers:
    return load_readers()


def load_readers(change: Callable[[ast.Module], ast.Module] = lambda tree: tree) -> Readers:
    """The light and the full reader as new modules, made of changed syntax trees."""
    light = _module(LIGHT_READER, change)
    before = sys.modules.get(light.__name__)
    sys.modules[light.__name__] = light
    try:
        return light, _module(REFERENCE_READER, change)
    finally:
        del sys.modules[light.__name__]
        if before is not None:
            sys.modules[light.__name__] = before


def _module(path: Path, change: Callable[[ast.Module], ast.Module]) -> ModuleType:
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    tree = change(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    exec(compile(tree, str(path), "exec"), vars(module))
    return module


def dump(objects: ObjectStore, folder: Path) -> Path:
    """Copy all objects of a topic into a folder, where the reference reader can open it."""
    for info in objects.list():
        target = folder / info.key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(objects.read(info.key) or b"")
    return folder
