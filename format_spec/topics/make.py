"""Makes the golden topics beside this file: `python format_spec/topics/make.py [folder]`.

Each case is a folder: `case.json` says what it shows and which rules it ties down, `topic/` is a
real topic, `expected.json` has what a reader must find, stated here by hand and not read back.
Clock and ids are fixed, so a second run gives the same manifests but for the ids in file names,
which are drawn by several threads, and for sizes, which depend on the Parquet library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from begun_topics import BEGUN_TOPICS
from cleaned_topics import CLEANED_TOPICS
from column_topics import COLUMN_TOPICS
from copied_topics import COPIED_TOPICS
from damaged_files import DAMAGED_FILES
from damaged_topics import DAMAGED_TOPICS
from golden_place import Place
from indexed_topics import INDEXED_TOPICS
from log_topics import LOG_TOPICS
from offered_topics import OFFERED_TOPICS

TOPICS = (
    *(*COLUMN_TOPICS, *LOG_TOPICS, *CLEANED_TOPICS, *INDEXED_TOPICS, *COPIED_TOPICS),
    *OFFERED_TOPICS,
    *(*DAMAGED_TOPICS, *DAMAGED_FILES, *BEGUN_TOPICS),
)


def make_all(folder: Path) -> None:
    for make in TOPICS:
        make(Place(folder / make.__name__.replace("_", "-")))


if __name__ == "__main__":
    make_all(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
