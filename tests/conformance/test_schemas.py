"""The JSON Schemas of `format_spec/schemas` describe what the library reads and writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from pylogtable.format import paths
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, contents, make_store
from tests.conformance.corpus import (
    SPEC_FOLDER,
    STORED_OBJECTS,
    TOPICS,
    VECTORS,
    golden_cases,
    in_bytes_only,
    json_examples,
    vector_files,
    vectors,
)

FOLDER = SPEC_FOLDER / "schemas"
SCHEMAS = {
    path.name.removesuffix(".schema.json"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("*.schema.json"))
}
REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
#: An object that is not stored, so that only its parts have schemas.
NEVER_STORED = {"StoredObject", "Change", "SegmentFacts", "GroupChange"}

Schema = dict[str, Any]


def _problems(kind: str, body: object) -> list[str]:
    validator = Draft202012Validator(SCHEMAS[kind], registry=REGISTRY)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(body)]


def _structs(schema: object) -> Iterator[Schema]:
    """Every part of a schema that has a title and members: one object of the format."""
    if isinstance(schema, dict):
        if "title" in schema and "properties" in schema:
            yield schema
        for part in schema.values():
            yield from _structs(part)


STRUCTS = {struct["title"]: struct for schema in SCHEMAS.values() for struct in _structs(schema)}


#: Follows a reference, if the schema is one. The text says which file the schema is in.
Resolve = Callable[[Schema, str], tuple[Schema, str]]


def _follow_file(schema: Schema, home: str) -> tuple[Schema, str]:
    """In our schemas a reference names a file, a place in it, or both."""
    if "$ref" not in schema:
        return schema, home
    file, _, pointer = schema["$ref"].partition("#")
    home = file or home
    found = SCHEMAS[home.removesuffix(".schema.json")]
    for name in pointer.strip("/").split("/") if pointer else ():
        found = found[name]
    return found, home


def _follow_model(schema: Schema, home: str) -> tuple[Schema, str]:
    """In the schemas that msgspec makes a reference is the name of a model."""
    return (MODELS[schema["$ref"]] if "$ref" in schema else schema), home


def _shape(schema: Schema, home: str, resolve: Resolve) -> Any:
    """What a value looks like, without names of references, defaults and bounds of text."""
    schema, home = resolve(schema, home)
    if schema.get("title") in STRUCTS or schema.get("title") == "Type":
        return schema["title"]
    if "anyOf" in schema:
        return sorted(str(_shape(part, home, resolve)) for part in schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "integer":
        return kind, schema["minimum"], schema["maximum"]
    if "prefixItems" in schema:
        return kind, [_shape(part, home, resolve) for part in schema["prefixItems"]]
    if kind == "array":
        return kind, _shape(schema["items"], home, resolve)
    if kind == "object" and "additionalProperties" in schema:
        return kind, _shape(schema["additionalProperties"], home, resolve)
    return kind


_STORED_OBJECTS = [stored for name, stored in STORED_OBJECTS.items() if name not in NEVER_STORED]
_, MODELS = msgspec.json.schema_components(_STORED_OBJECTS, ref_template="{name}")
#: Where a schema says more than the model: names of types, and what replay refuses.
NARROWER = {
    ("Field", "type"): "Type",
    ("Segment", "shift"): ("integer", 0, 2**63 - 1),
    ("PublishedState", "widened"): ("object", ("array", "Type")),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_valid_and_has_the_id_of_its_file(kind: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind])
    assert SCHEMAS[kind]["$id"] == f"{kind}.schema.json"


def test_every_stored_object_has_a_schema() -> None:
    missing = {stored.__name__ for stored in _STORED_OBJECTS} - set(STRUCTS)
    assert not missing, f"write a schema for {missing} in format_spec/schemas"


@pytest.mark.parametrize("name", sorted(stored.__name__ for stored in _STORED_OBJECTS))
def test_a_schema_has_the_fields_of_the_model(name: str) -> None:
    home = next(kind for kind, s in SCHEMAS.items() if STRUCTS[name] in list(_structs(s)))
    file = f"{home}.schema.json"
    ours, theirs = STRUCTS[name], MODELS[name]
    edit = f"edit {name} in format_spec/schemas/{file}"
    described = {f: s for f, s in ours["properties"].items() if f not in in_bytes_only(name)}
    assert set(described) == set(theirs["properties"]), edit
    assert sorted(ours["required"]) == sorted(theirs["required"]), edit
    for field, schema in described.items():
        shape = _shape(theirs["properties"][field], file, _follow_model)
        expected = NARROWER.get((name, field), shape)
        assert _shape(schema, file, _follow_file) == expected, f"{field}: {edit}"


@pytest.mark.parametrize(("kind", "text"), json_examples())
def test_the_examples_of_the_specification_are_valid(kind: str, text: str) -> None:
    assert _problems(kind, json.loads(text)) == []


def test_vectors_of_the_codec_are_valid_unless_they_do_not_decode() -> None:
    undecodable = {"COMMIT-1", "ROOT-1", "GRP-2", "PATH-4", "SEG-10", "SUM-1", "TYPE-1"}
    refused = 0
    for vector in vectors("codec"):
        given = vector["input"]
        if "json" not in given:
            continue
        problems = _problems(given["object"], given["json"])
        if "error" not in vector:
            assert problems == [] or vector["expected"] is None, vector["name"]
        elif problems:
            assert vector["error"].get("rule", "TYPE-1") in undecodable, vector["name"]
            refused += 1
    assert refused >= 10


@pytest.mark.parametrize("name", vector_files())
def test_vector_files_and_the_commits_in_them_are_valid(name: str) -> None:
    corpus = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    assert _problems("vectors", corpus) == []
    for vector in corpus:
        for commit in vector["input"].get("commits", []):
            assert _problems("commit", commit) == [] or "error" in vector, vector["name"]


def _kind_of(key: str) -> str | None:
    if paths.parse_commit_path(key) is not None:
        return "commit"
    if paths.parse_root_path(key) is not None:
        return "root"
    if paths.parse_group_path(key) is not None:
        return "group"
    if paths.parse_offer_path(key) is not None:
        return "offer"
    return "hint" if key == paths.HINT_PATH else None


@pytest.mark.parametrize("case", golden_cases())
def test_a_golden_topic_is_valid(case: str) -> None:
    for file, kind in (("case.json", "case"), ("expected.json", "expected")):
        path = TOPICS / case / file
        if path.exists():
            assert _problems(kind, json.loads(path.read_text(encoding="utf-8"))) == []
    folder = TOPICS / case / "topic"
    if case.startswith("corrupt-"):
        return
    found = [(_kind_of(path.relative_to(folder).as_posix()), path) for path in _files(folder)]
    checked = [(kind, path) for kind, path in found if kind is not None]
    assert checked
    for kind, path in checked:
        assert _problems(kind, json.loads(path.read_text(encoding="utf-8"))) == [], path.name


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_objects_that_the_library_writes_are_valid(clock: Clock) -> None:
    objects = MemoryStore()
    store = make_store(objects, clock)
    schema = {"id": pa.int64(), "tags": pa.map_(pa.string(), pa.list_(pa.decimal128(9, 2)))}
    topic = store.create_topic(
        "t", partitions=3, schema=schema, key="id", config={"cleanup.policy": "compact,delete"}
    )
    for number in range(70):
        clock.tick(1)
        tags = pa.array([None if number % 3 else [("a", [])]], schema["tags"])
        rows = pa.table({"id": [number % 5], "tags": tags})
        topic.append(rows, txn=("app", number) if number % 2 else None)
    topic.alter(config={"retention.ms": "1000"}, partitions=4, add_columns={"n": pa.int8()})
    topic.compact(force=True)
    topic.merge()
    topic.delete_records({0: None})
    group = topic.group("g")
    group.commit({0: 1}, metadata="m")
    with topic.consumer("m", member="worker") as member:
        member.poll()
    topic.group("g").delete()
    written = contents(objects)
    store.delete_topic("t")
    written |= contents(objects)
    kinds: Counter[str] = Counter()
    for key, data in written.items():
        kind = _kind_of(key.removeprefix("t/"))
        if kind is not None and data is not None:
            kinds[kind] += 1
            assert _problems(kind, json.loads(data)) == [], key
    assert kinds["commit"] > 70
    assert set(kinds) == {"commit", "root", "hint", "group"}


def test_damaged_objects_are_not_valid() -> None:
    """The schemas say no: each of these breaks one thing in an object that is valid."""
    entry = {
        "partition": 0,
        "base_offset": 0,
        "end_offset": 1,
        "records": 1,
        "size_bytes": 1,
        "min_timestamp_us": -1,
        "max_timestamp_us": 0,
        "path": "partition=0/00000000000000000000-a.parquet",
    }
    assert _problems("segment", entry) == []
    for broken in (
        {"path": "partition=0/../00000000000000000000-a.parquet"},
        {"path": "partition=00/00000000000000000000-a.parquet"},
        {"records": -1},
        {"shift": -1},
        {"row_groups": [0, "1"]},
        {"hashed_over": 0},
        {"end_offset": 2**63},
    ):
        assert len(_problems("segment", {**entry, **broken})) == 1, broken
