"""What has to hold of a published Delta table after every step of everybody."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pylogtable.topic import Topic
from tests.model.checker import Told
from tests.model.replay import Objects, ObjectsStore
from tests.model.writers import LocalTime
from tests.publish.plain_delta import Entry, actions, shown_version

LOG = "_delta_log/"
#: A record: its partition, its offset, its value.
Records = Counter[tuple[int, int, Any]]


class Wrong(Exception):
    """Says what is wrong with a table."""


class TableWatch:
    """Looks at the table in every state. `start` has what a vacuum may remove: with it, versions
    that are gone are still known. `may_be_removed` if somebody unpublishes: a publisher that meets
    half of a table may refuse it. `may_mix` if versions may be gone that a stream has to see."""

    def __init__(
        self, start: Objects, *, may_be_removed: bool = False, may_mix: bool = False
    ) -> None:
        self._start = start
        self._may_be_removed = may_be_removed
        self._may_mix = may_mix
        self._versions: dict[tuple[bytes, ...], Records] = {}
        self._right: dict[tuple[bytes, ...], set[str]] = {}

    def step(self, before: Objects, after: Objects) -> str | None:
        """What is wrong with a step."""
        old, new = log_of(before), log_of(after)
        try:
            if old != new:
                self._check_same(old, new)
            self._check(after, new)
        except Wrong as wrong:
            return str(wrong)
        return None

    def end(self, objects: Objects, told: tuple[Told, ...]) -> str | None:
        """What is wrong with an end: the table is whole, and everybody has been told the truth."""
        log = log_of(objects)
        if log and sorted(log) != list(range(len(log))):
            return f"entries are missing: there are {sorted(log)}"
        shown = shown_version(decoded(log[max(log)])) if log else None
        for name, answer in told:
            if answer[0] == "failed":
                if self._may_be_removed and "unpublish the topic and publish it again" in answer[1]:
                    continue
                return f"{name} failed: {answer[1]}"
            if self._may_be_removed or answer[0] != "published":
                continue
            is_shown = shown is not None and (
                shown >= answer[1] or self._same_records(objects, shown, answer[1])
            )
            if not is_shown:
                return f"{name} was told that {answer[1]} is shown, but the table shows {shown}"
        return None

    def _same_records(self, objects: Objects, shown: int, version: int) -> bool:
        """True if the commits from one version to the other have changed no record: then no entry
        is written for them."""
        known = {**self._start, **objects}
        return self._at(known, shown) == self._at(known, version)

    def _check_same(self, old: dict[int, bytes], new: dict[int, bytes]) -> None:
        for number, data in old.items():
            if new.get(number, data) != data:
                raise Wrong(f"entry {number} was overwritten")
            if number not in new and not self._may_be_removed:
                raise Wrong(f"entry {number} was removed")

    def _check(self, objects: Objects, log: dict[int, bytes]) -> None:
        """What a reader sees that begins at entry 0 is right. If an entry is missing below, engines
        refuse the table."""
        if not self._may_be_removed and sorted(log) != list(range(len(log))):
            raise Wrong(f"entries are missing: there are {sorted(log)}")
        chain = tuple(log[number] for number in range(len(log)) if number in log)
        if sorted(log) != list(range(len(log))):
            return
        if chain not in self._right:
            self._right[chain] = self._check_entries(objects, [decoded(data) for data in chain])
        gone = sorted(path for path in self._right[chain] if path not in objects)
        if gone:
            raise Wrong(f"entry {len(chain) - 1} shows {gone}, which is gone")

    def _check_entries(self, objects: Objects, log: Sequence[Entry]) -> set[str]:
        """Every entry shows one version of the topic and follows the one before. Returns the files
        that the newest one shows."""
        known = {**self._start, **objects}
        shown: set[str] = set()
        version, records = -1, Records()
        for number, entry in enumerate(log):
            if shown_version(entry) < version:
                raise Wrong(f"entry {number} shows {shown_version(entry)} after {version}")
            version = shown_version(entry)
            for gone in actions(entry, "remove"):
                if gone["path"] not in shown:
                    raise Wrong(f"entry {number} removes {gone['path']}, which was not there")
                shown.remove(gone["path"])
            for new in actions(entry, "add"):
                if new["path"] in shown:
                    raise Wrong(f"entry {number} adds {new['path']} again")
                shown.add(new["path"])
            before, records = records, records_in(known, shown)
            if records != self._at(known, version):
                raise Wrong(f"entry {number} does not show the records of version {version}")
            if number:
                self._check_changes(known, entry, number, before, records)
        return shown

    def _check_changes(
        self, known: Objects, entry: Entry, number: int, before: Records, after: Records
    ) -> None:
        """A stream over the table sees every record once [PUB-3], [PUB-4]."""
        data: dict[str, Records] = {}
        kept: dict[str, Records] = {}
        for verb in ("add", "remove"):
            files = actions(entry, verb)
            data[verb] = records_in(known, [f["path"] for f in files if f["dataChange"]])
            kept[verb] = records_in(known, [f["path"] for f in files if not f["dataChange"]])
        come, gone = after - before, before - after
        if self._may_mix and come and gone:
            return
        if come and gone:
            raise Wrong(f"entry {number} has new records, and others vanish")
        if come and (data["add"] != come or data["remove"]):
            raise Wrong(f"entry {number} does not add exactly its new records")
        if kept["add"] != kept["remove"]:
            raise Wrong(f"entry {number} changes records and calls it no change of data")

    def _at(self, known: Objects, version: int) -> Records:
        """The records of a version of the topic, as a read of the topic gives them."""
        key = tuple(data for path, data in sorted(known.items()) if path.startswith("_manifest/"))
        key = (*key, str(version).encode())
        if key not in self._versions:
            topic = Topic("t", ObjectsStore(known), LocalTime().runtime("look", 100.0))
            found = topic.read(version=version).read_all()
            columns = (found[name].to_pylist() for name in ("partition", "offset", "n"))
            self._versions[key] = Records(zip(*columns, strict=True))
        return self._versions[key]


def log_of(objects: Objects) -> dict[int, bytes]:
    """The entries of the table, by number."""
    return {
        int(key[len(LOG) : -len(".json")]): data
        for key, data in objects.items()
        if key.startswith(LOG) and key.endswith(".json")
    }


def decoded(data: bytes) -> Entry:
    return [json.loads(line) for line in data.splitlines()]


def records_in(objects: Objects, paths: Sequence[str] | set[str]) -> Records:
    """The records in these files, as an engine reads them."""
    found = Records()
    for path in paths:
        if path not in objects:
            raise Wrong(f"{path} is shown, and never was there")
        table = pq.read_table(pa.BufferReader(objects[path]), columns=["offset", "n"])
        partition = int(path.split("/")[0].partition("=")[2])
        for row in table.to_pylist():
            found[partition, row["offset"], row["n"]] += 1
    return found
