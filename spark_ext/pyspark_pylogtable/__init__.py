"""The PySpark side of pylogtable: `format("pylogtable")`, and `LogTable` for notebooks and jobs.

Spark imports every installed `pyspark_*` module to look for a `DefaultSource`. If one import
raises, Spark finds no source at all. So this module imports nothing that could fail until a name
is used, and `DefaultSource` does not exist where PySpark is missing or older than 4.0.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from pyspark_pylogtable import worker_imports

if TYPE_CHECKING:
    from pyspark_pylogtable.diagnosis.doctor import SparkReport, doctor
    from pyspark_pylogtable.registration import register
    from pyspark_pylogtable.source import LogTableSource as DefaultSource
    from pyspark_pylogtable.stream.progress import OffsetsBehind, TopicBehind, offsets_behind
    from pyspark_pylogtable.table.log_table import LogTable

__all__ = [
    "DefaultSource",
    "LogTable",
    "OffsetsBehind",
    "SparkReport",
    "TopicBehind",
    "doctor",
    "offsets_behind",
    "register",
]

_HOMES = {
    "DefaultSource": ("pyspark_pylogtable.source", "LogTableSource"),
    "LogTable": ("pyspark_pylogtable.table.log_table", "LogTable"),
    "OffsetsBehind": ("pyspark_pylogtable.stream.progress", "OffsetsBehind"),
    "SparkReport": ("pyspark_pylogtable.diagnosis.doctor", "SparkReport"),
    "TopicBehind": ("pyspark_pylogtable.stream.progress", "TopicBehind"),
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
            f"{__name__}.{name} needs PySpark 4.0 or newer. {_what_is_wrong(error)}"
        ) from error


def _what_is_wrong(error: ImportError) -> str:
    """One sentence about this Python, and the way out."""
    where = f"This Python ({sys.executable})"
    try:
        version = importlib.import_module("pyspark").__version__
    except ImportError:
        return (
            f"{where} has no PySpark: pip install 'pylogtable[spark]'. On a platform that brings "
            "PySpark along use its own Python, and install pylogtable without that extra"
        )
    if int(version.partition(".")[0]) < 4:
        return (
            f"{where} has PySpark {version}, which has no Python data sources: choose a runtime "
            "with Spark 4. The library pylogtable works without Spark"
        )
    if error.name is None or error.name.partition(".")[0] == "pyspark":
        return f"{where} has PySpark {version}, and cannot import what is needed: {error}"
    return (
        f"{where} has PySpark {version}, and lacks {error.name}: pip install {error.name}, or, for "
        "Spark Connect, pip install 'pyspark[connect]' in the version of the server"
    )
