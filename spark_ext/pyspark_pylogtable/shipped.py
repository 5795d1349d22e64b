"""A package that a job ships as a zip archive (`--py-files`, `addArtifacts`) instead of installing.

Spark puts such an archive on the path of executors, and of the process that creates a source. But
the process that plans a stream gets no path, and cannot load the source. So what is pickled brings
the place of the archive along: a pickle is loaded from its beginning, and its first part puts
the archive on the path, by functions that every Python has.
"""

from __future__ import annotations

import operator
import shutil
import site
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def archive_of(file: str) -> Path | None:
    """The zip archive, or the wheel, that a module's file is in; None if it is in a directory."""
    return next((path for path in Path(file).parents if path.is_file()), None)


def reduced(make: Callable[..., Any], *arguments: Any) -> Reduced:
    """What `__reduce__` returns for an object that `make(*arguments)` makes again."""
    archive = archive_of(__file__)
    if archive is None:
        return make, arguments
    both = _Call(site.addsitedir, str(archive)), _Call(make, *arguments)
    return operator.getitem, (both, 1)


@cache
def zip_of_wheel() -> Path | None:
    """The wheel that this package is imported from, as a file that Spark takes for an archive: it
    knows them by their names. None if it is not imported from a wheel. It is the same file each
    time, because Spark refuses a second one of the same name."""
    archive = archive_of(__file__)
    if archive is None or archive.suffix != ".whl":
        return None
    folder = Path(tempfile.mkdtemp(prefix="pylogtable-"))
    return Path(shutil.copy(archive, folder / f"{archive.stem}.zip"))


class _Call:
    """Is loaded as the result of a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Reduced:
        return self._call
