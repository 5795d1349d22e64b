"""The readers of `format_spec` beside the library: rows in commits, and roots without commits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import pylogtable
from tests.conformance.corpus import TOPICS, Vector, as_stored, vectors
from tests.reference import light_reader, reference_reader

light, full = light_reader(), reference_reader()


@pytest.mark.parametrize("level", [light.LightReader, full.Reader])
@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in vectors("rows")])
def test_it_agrees_with_the_vectors_of_rows(level: Any, vector: Vector, tmp_path: Path) -> None:
    for commit in vector["input"]["commits"]:
        path = tmp_path / light.commit_name(commit["version"])
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(as_stored(commit))
    reader = level(tmp_path)
    state = reader.open()
    if "error" not in vector:
        assert list(reader.rows(state)) == vector["expected"]
        return
    with pytest.raises(light.Corrupt) as caught:
        list(reader.rows(state))
    assert caught.value.rule == vector["error"]["rule"]


def test_a_root_whose_commit_is_gone_is_not_used_if_a_void_commit_follows(tmp_path: Path) -> None:
    folder = tmp_path / "topic"
    shutil.copytree(TOPICS / "old-hint" / "topic", folder)
    assert full.Reader(folder).open()["version"] == 3  # nobody needs the commit of the root
    path = folder / light.commit_name(3)
    commit = json.loads(path.read_bytes())
    commit.pop("checksum", None)
    path.write_text(json.dumps({**commit, "topic_id": "another"}))
    with pytest.raises(light.Corrupt, match="COMMIT-3"):
        full.Reader(folder).open()
    with pytest.raises(pylogtable.CorruptTopicError, match="COMMIT-3"):
        pylogtable.open_topic(str(folder))


def test_entries_that_do_not_take_rows_in_order_are_found_behind_a_root() -> None:
    vector = vectors("rows")[0]
    commit = vector["input"]["commits"][1]
    entry = full.Reader(Path("nowhere")).decode_commit(as_stored(commit), 1)["add"][1]
    commit["add"][0]["path"] = commit["add"][0]["path"].replace("@0", "@1")
    with pytest.raises(light.Corrupt, match="INL-3"):
        full.Reader(Path("nowhere")).read_inline(
            as_stored(commit), entry, {"fields": [], "key": []}
        )
