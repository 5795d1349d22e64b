"""Where the specification, its vectors and its golden topics are, and how they are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pylogtable.format import group_model, model, offers, published_state
from pylogtable.format.json_bytes import checksum
from pylogtable.format.model import Segment
from pylogtable.format.partition_state import PartitionState

REPOSITORY = Path(__file__).parents[2]
SPEC_FOLDER = REPOSITORY / "format_spec"
#: The documents that define rules. Some sections are files of their own.
_SECTIONS = (
    *("spec.md", "maintenance.md", "groups.md"),
    *("published.md", "published_iceberg.md", "mirror.md", "offers.md", "guarded.md"),
)
SPEC = [SPEC_FOLDER / name for name in _SECTIONS]
VECTORS = SPEC_FOLDER / "vectors"
TOPICS = SPEC_FOLDER / "topics"

RULE = re.compile(r"\[([A-Z]+-\d+)\]")
RULE_OR_RANGE = re.compile(r"\b([A-Z]{3,})-(\d+)(?:\.\.(\d+))?\b")

Vector = dict[str, Any]

#: The objects of the format, by name.
STORED_OBJECTS: dict[str, type[model.StoredObject]] = {
    name: stored
    for module in (model, group_model, offers, published_state)
    for name, stored in vars(module).items()
    if isinstance(stored, type) and issubclass(stored, model.StoredObject)
}


def spec_text() -> str:
    """All sections of the specification."""
    return "\n".join(path.read_text(encoding="utf-8") for path in SPEC)


def defined_rules() -> list[str]:
    """The rules that the specification defines, in its order."""
    return re.findall(r"^- \*\*\[([A-Z]+-\d+)\]\*\*", spec_text(), re.MULTILINE)


def json_examples() -> list[tuple[str, str]]:
    """The specification's JSON blocks, each with the kind of object that it says it shows."""
    return re.findall(r"^```json(?: (\w+))?\n(.*?)^```", spec_text(), re.MULTILINE | re.DOTALL)


def rules_in(text: str) -> list[str]:
    """The rules that a text names, with or without brackets, also as ranges such as LOG-4..7."""
    return [
        f"{family}-{number}"
        for family, low, high in RULE_OR_RANGE.findall(text)
        for number in range(int(low), int(high or low) + 1)
    ]


def table_after(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = text.partition(f"\n{heading}\n")[2]
    found = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n)*)", section, re.MULTILINE)
    assert found is not None, heading
    return [[c.strip() for c in row[1:-1].split("|")] for row in found[1].splitlines()]


def vector_files() -> list[str]:
    return sorted(path.stem for path in VECTORS.glob("*.json"))


def vectors(name: str) -> list[Vector]:
    found: list[Vector] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def golden_cases() -> list[str]:
    return sorted(path.parent.name for path in TOPICS.glob("*/case.json"))


def golden(case: str, file: str) -> Any:
    """A case's `case.json` or `expected.json`; None if it has none."""
    path = TOPICS / case / file
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def in_bytes_only(model: str) -> set[str]:
    """The fields that an object has as bytes only: a checksum says nothing about the state."""
    return {"checksum"} if model in {"Commit", "Root", "GroupState", "Offer"} else set()


def int_keys(mapping: dict[str, Any]) -> dict[int, Any]:
    """JSON's keys are text; partitions are numbers."""
    return {int(key): value for key, value in mapping.items()}


def segments_of(state: PartitionState) -> list[Segment]:
    """All segments of a partition that rests on no root."""
    tiles = list(state.tiles)
    assert all(isinstance(tile, Segment) for tile in tiles)
    return tiles  # type: ignore[return-value]


def as_stored(commit: Vector) -> bytes:
    """A commit of a vector as a writer puts it. Only one with rows needs its checksum [INL-4]."""
    body = json.dumps(commit).encode()
    if "rows" not in commit:
        return body
    return body[:-1] + f',"checksum":"{checksum(body[:-1])}"}}'.encode()
