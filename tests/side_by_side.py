"""How `pytest -n` shares the tests out: file by file, and all that use one Spark session as one.

There are two sessions: streams wait much of their time, which other Spark tests can use. What takes
long begins first, so that no process is alone for long at the end.
"""

from __future__ import annotations

#: They start sessions of their own, in other processes.
ALONE = ("tests/spark/test_stream_kill.py", "tests/spark/test_connect.py")
STREAMS = ("tests/spark/test_stream", "tests/spark/test_guide", "tests/spark/test_readme")
LONGEST_FIRST = (
    "tests/spark",
    "streams",
    *ALONE,
    "tests/notebooks/",
    "tests/run/",
    "tests/s3/",
    "tests/cost/",
    "tests/faults/",
    "tests/properties/",
    "tests/model/",
    "",
)


def unit_of(nodeid: str) -> str:
    """What has to run in one process, one test after the other."""
    file = nodeid.partition("::")[0]
    if file in ALONE or not file.startswith("tests/spark/"):
        return file
    return "streams" if file.startswith(STREAMS) else "tests/spark"


def rank_of(nodeid: str) -> int:
    unit = unit_of(nodeid)
    if unit in LONGEST_FIRST:
        return LONGEST_FIRST.index(unit)
    folder = unit[: unit.rfind("/") + 1]
    return LONGEST_FIRST.index(folder if folder in LONGEST_FIRST else "")
