"""Parts of pyarrow that a look at metadata never needs, imported when they are first used.

Importing `pyarrow.compute` and `pyarrow.parquet` takes about as long as opening a topic twenty
times, and a command that describes a topic touches neither.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["pc", "pq"]


class _Deferred:
    """Stands for a module until one of its names is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __repr__(self) -> str:
        return f"<deferred module {self._name!r}>"

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = importlib.import_module(self._name)
        return getattr(self._module, name)


if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    pc = _Deferred("pyarrow.compute")
    pq = _Deferred("pyarrow.parquet")
