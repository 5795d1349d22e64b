"""The PySpark side of pylogtable: `format("pylogtable")`, and `LogTable` for notebooks and jobs.

Spark imports every installed `pyspark_*` module to look for a `DefaultSource`. If one import
raises, Spark finds no source at all. So this module imports nothing that could fail until a name
is used, and `DefaultSource` does not exist where PySpark is missing or older than 4.0.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pyspark_pylogtable import worker_imports

if TYPE_CHECKING:
    from pyspark_pylogtable.diagnosis.doctor import SparkReport, doctor
    from pyspark_pylogtable.registration import register
    from pyspark_pylogtable.source import LogTableSource as DefaultSource
    from pyspark_pylogtable.stream.progress import OffsetsBehind, offsets_behind
    from pyspark_pylogtable.table.log_table import LogTable

__all__ = [
    "DefaultSource",
    "LogTable",
    "OffsetsBehind",
    "SparkReport",
    "doctor",
    "offsets_behind",
    "register",
]

_HOMES = {
    "DefaultSource": ("pyspark_pylogtable.source", "LogTableSource"),
    "LogTable": ("pyspark_pylogtable.table.log_table", "LogTable"),
    "OffsetsBehind": ("pyspark_pylogtable.stream.progress", "OffsetsBehind"),
    "SparkReport": ("pyspark_pylogtable.diagnosis.doctor", "SparkReport"),
    "doctor": ("pyspark_pylogtable.diagnosis.doctor", "doctor"),
    "offsets_behind": ("pyspark_pylogtable.stream.progress", "offsets_behind"),
    "register": ("pyspark_pylogtable.registration", "register"),
}

worker_imports.install()


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        # Spark looks for the name with hasattr, which needs an AttributeError. For the other names
        # an ImportError is better: `from … import` would hide the message of an AttributeError.
        kind = AttributeError if name == "DefaultSource" else ImportError
        raise kind(
            f"{__name__}.{name} needs PySpark 4.0 or newer ({error}): "
            "pip install 'pylogtable[spark]'"
        ) from error
