"""A home of Spark without the zip of pyspark in it.

Spark puts that zip before everything else on the path of each Python that it starts: its planners,
one for each run of a stream, and the parent of its workers. Python keeps no bytecode of a zip, so
each of them compiles pyspark anew, for about a second. Without it they import the same pyspark as
the tests do, from where pip put it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

_NEEDED = "bin", "jars", "sbin"


def spark_home() -> TemporaryDirectory[str] | None:
    """None if pip brought no Spark along with pyspark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).parent
    if not all((installed / name).is_dir() for name in _NEEDED):
        return None
    home = TemporaryDirectory(prefix="spark-home-")
    for name in _NEEDED:
        (Path(home.name) / name).symlink_to(installed / name)
    return home
