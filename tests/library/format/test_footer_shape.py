"""Footers without a checksum: damage that would end the process inside of Arrow is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pylogtable.format.footer_shape import shape_fault
from tests.conformance.corpus import TOPICS

SHIFTED = "partition=0/00000000000000000000-00000004.parquet"
#: Bits of this file whose change ends a process that parses it: levels of columns, and the lengths
#: of their histograms. None of them is in a checksum: an older writer has written the file.
DEADLY = [(596, 0), (597, 1), (606, 0), (616, 0), (617, 3), (647, 0), (663, 0), (679, 0)]

READ_EACH = """
import sys
import pylogtable
for folder in sys.argv[1:]:
    try:
        pylogtable.open_topic(folder).read().read_all()
    except pylogtable.CorruptTopicError as error:
        print(error.rule)
"""


def test_damage_that_would_end_the_process_is_an_error(tmp_path: Path) -> None:
    folders = []
    for byte, bit in DEADLY:
        folder = tmp_path / f"{byte}-{bit}"
        shutil.copytree(TOPICS / "shifted" / "topic", folder)
        data = bytearray((folder / SHIFTED).read_bytes())
        data[byte] ^= 1 << bit
        (folder / SHIFTED).write_bytes(data)
        folders.append(str(folder))
    command = [sys.executable, "-c", READ_EACH, *folders]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["SEG-2"] * len(DEADLY)


def test_every_sound_file_of_the_golden_topics_passes() -> None:
    files = [path for path in TOPICS.rglob("*.parquet") if "corrupt-" not in str(path)]
    assert len(files) > 200
    faults = {path.name: shape_fault(path.read_bytes()) for path in files}
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_any_bytes_have_an_answer() -> None:
    data = (TOPICS / "map-column" / "topic" / "partition=0").glob("*.parquet")
    whole = next(data).read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    assert shape_fault(whole) is None
    for at in range(len(whole) - 8 - length, len(whole) - 8):
        cut = bytearray(whole)
        cut[at] ^= 0xFF
        shape_fault(bytes(cut))  # raises nothing
    assert shape_fault(b"") is not None
    assert shape_fault(whole[-20:]) == "its footer is longer than the file"
