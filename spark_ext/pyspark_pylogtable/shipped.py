"""What a job ships (`--py-files`, `addArtifacts`) instead of installing: this package as a zip
archive, and modules of its own that give credentials.

Spark puts them on the path of executors, and of the process that creates a source. But the process
that plans a stream gets no path, and cannot load the source. So what is pickled brings the places
along: a pickle is loaded from its beginning, and its first part puts them on the path, by functions
that every Python has.
"""

from __future__ import annotations

import importlib.util
import operator
import shutil
import site
import sysconfig
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def archive_of(file: str) -> Path | None:
    """The zip archive, or the wheel, that a module's file is in; None if it is in a directory."""
    return next((path for path in Path(file).parents if path.is_file()), None)


def place_of(module: str) -> Path | None:
    """The archive or the directory that a module is imported from; None if it is installed, or
    not there."""
    found = importlib.util.find_spec(module.partition(".")[0]) if module else None
    if found is None or not found.origin or not found.has_location:
        return None
    above = Path(found.origin).parents[1 if found.submodule_search_locations else 0]
    is_installed = str(above) in sysconfig.get_paths().values()
    return None if is_installed else archive_of(found.origin) or above


def reduced(make: Callable[..., Any], *arguments: Any, needed: str = "") -> Reduced:
    """What `__reduce__` returns for an object that `make(*arguments)` makes again. It needs the
    module `needed`."""
    places = {str(place) for place in (archive_of(__file__), place_of(needed)) if place}
    if not places:
        return make, arguments
    calls = *(_Call(site.addsitedir, place) for place in sorted(places)), _Call(make, *arguments)
    return operator.getitem, (calls, len(places))


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
