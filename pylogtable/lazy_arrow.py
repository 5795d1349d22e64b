"""`pyarrow.compute`, `pyarrow.dataset`, `pyarrow.fs` and `pyarrow.parquet`, imported when they are
first used.

Importing them takes about twenty times as long as opening a topic, and a command that only looks
at metadata needs none of them.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["ds", "fs", "pc", "pq"]


class _LazyModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __repr__(self) -> str:
        return f"<lazy module {self._name!r}>"

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = importlib.import_module(self._name)
        found = getattr(self._module, name)
        setattr(self, name, found)  # so that this is not called again
        return found


if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.fs as fs
    import pyarrow.parquet as pq
else:
    ds = _LazyModule("pyarrow.dataset")
    fs = _LazyModule("pyarrow.fs")
    pc = _LazyModule("pyarrow.compute")
    pq = _LazyModule("pyarrow.parquet")


def load_arrow() -> None:
    """Load now what the first work with records would load: half a second where there is pandas,
    which pyarrow looks for when it is first given Python's objects."""
    import pyarrow as pa

    pc.is_null(pa.array([b""]))
    _ = pq.ParquetWriter
