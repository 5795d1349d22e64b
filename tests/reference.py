"""The reference reader of the specification as a module: tests compare the library with it."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from pylogtable.storage.base import ObjectStore

REFERENCE_READER = Path(__file__).parents[1] / "format_spec" / "reference_reader.py"


@cache
def reference_reader() -> ModuleType:
    """The module that all tests share. Whoever changes anything in it loads its own."""
    return load_reference_reader("reference_reader")


def load_reference_reader(name: str) -> ModuleType:
    """The reader as a new module with this name."""
    spec = importlib.util.spec_from_file_location(name, REFERENCE_READER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def dump(objects: ObjectStore, folder: Path) -> Path:
    """Copy all objects of a topic into a folder, where the reference reader can open it."""
    for info in objects.list():
        target = folder / info.key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(objects.read(info.key) or b"")
    return folder
