"""What a Python process of Spark has: versions, packages, and which variables are set.

Workers get `collect` by value, because they may not have this package: that is what it finds out.
So it uses nothing of this module and imports only the standard library. Values of variables are
never collected, only their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class Facts(TypedDict):
    """What one Python process has. A package that is missing is None; one that cannot be imported
    has the error, after a `!`."""

    machine: str
    process: int
    executable: str
    python: str
    packages: dict[str, str | None]
    variables: list[str]


def collect(packages: Sequence[str], variables: Sequence[str]) -> Facts:
    """The facts of this process."""
    import importlib
    import importlib.metadata
    import importlib.util
    import os
    import platform
    import sys

    def version(name: str) -> str | None:
        if importlib.util.find_spec(name) is None:
            return None
        if name == "pylogtable":
            try:
                importlib.import_module("pylogtable.engine")
                importlib.import_module("pyspark_pylogtable")
                return str(importlib.import_module(name).__version__)
            except Exception as error:  # whatever it is, the report tells it
                return f"!{type(error).__name__}: {error}"
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # it came in a zip archive
            return str(getattr(importlib.import_module(name), "__version__", "of no version"))

    return {
        "machine": platform.node(),
        "process": os.getpid(),
        "executable": sys.executable,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "variables": [name for name in variables if os.environ.get(name)],
    }
