"""Saves Spark before 4.3 from reading its own zip archives again for every task.

That Spark calls `importlib.invalidate_caches()` at the start of each task and each planning step.
For every package that was imported from `pyspark.zip`, Python then reads the archive's whole
directory again, in pure Python: 0.15 to 0.4 s, which is most of a small task. Here an archive is
read again only if it changed. `PYLOGTABLE_FAST_IMPORTS=0` in the environment of the executors
leaves Python as it is.
"""

from __future__ import annotations

import os
import sys
import time
import zipimport
from collections.abc import Callable
from weakref import WeakKeyDictionary

TURNED_OFF_BY = "PYLOGTABLE_FAST_IMPORTS"

#: A file that changed so recently may change again without a difference in its times.
SETTLED_SECONDS = 2.0

_FileState = tuple[int, ...]

_read_as: WeakKeyDictionary[zipimport.zipimporter, _FileState] = WeakKeyDictionary()
_read_again = zipimport.zipimporter.invalidate_caches


def install() -> None:
    """Let zip archives be read again only if they changed, in workers of a Spark before 4.3."""
    if os.environ.get(TURNED_OFF_BY) != "0" and _is_worker() and _spark_version() < (4, 3):
        zipimport.zipimporter.invalidate_caches = read_again_if_changed  # type: ignore[method-assign, assignment]


def read_again_if_changed(
    importer: zipimport.zipimporter,
    # `runtime.Runtime` has a clock, but importing it would import the library.
    now: Callable[[], float] = time.time,  # noqa: TID251
) -> None:
    """As `zipimporter.invalidate_caches`, but an archive that is unchanged since this importer's
    last call is not read again."""
    state = _state_of(importer.archive, now())
    if state is not None and _read_as.get(importer) == state:
        return
    _read_again(importer)
    if state is None:
        _read_as.pop(importer, None)
    else:
        _read_as[importer] = state


def _state_of(archive: str, now: float) -> _FileState | None:
    """What changes with the file; None if it is missing or too fresh to be sure."""
    try:
        found = os.stat(archive)
    except OSError:
        return None
    if now - max(found.st_mtime, found.st_ctime) < SETTLED_SECONDS:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_worker() -> bool:
    """Whether Spark started this process: its main module is then `pyspark.daemon`, or one of the
    worker modules."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def _spark_version() -> tuple[int, ...]:
    version: str = getattr(sys.modules.get("pyspark"), "__version__", "4.3")
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
