"""How `pytest -n` shares the tests out: file by file, and all that use one Spark session as one.

What takes long begins first, so that no process is alone for long at the end.
"""

from __future__ import annotations

#: They start sessions of their own, in other processes.
ALONE = ("tests/spark/test_stream_kill.py", "tests/spark/test_connect.py")
LONGEST_FIRST = (
    "tests/spark",
    *ALONE,
    "tests/notebooks/",
    "tests/cost/",
    "tests/faults/",
    "tests/properties/",
    "tests/model/",
    "",
)


def unit_of(nodeid: str) -> str:
    """What has to run in one process, one test after the other."""
    file = nodeid.partition("::")[0]
    return "tests/spark" if file.startswith("tests/spark/") and file not in ALONE else file


def rank_of(nodeid: str) -> int:
    unit = unit_of(nodeid)
    if unit in LONGEST_FIRST:
        return LONGEST_FIRST.index(unit)
    folder = unit[: unit.rfind("/") + 1]
    return LONGEST_FIRST.index(folder if folder in LONGEST_FIRST else "")
