"""Where the specification, its vectors and its golden topics are, and how they are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pylogtable.format.model import Segment
from pylogtable.format.snapshot import PartitionState

REPOSITORY = Path(__file__).parents[2]
SPEC_FOLDER = REPOSITORY / "format_spec"
SPEC = SPEC_FOLDER / "spec.md"
VECTORS = SPEC_FOLDER / "vectors"
TOPICS = SPEC_FOLDER / "topics"

RULE = re.compile(r"\[([A-Z]+-\d+)\]")

Vector = dict[str, Any]


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


def int_keys(mapping: dict[str, Any]) -> dict[int, Any]:
    """JSON's keys are text; partitions are numbers."""
    return {int(key): value for key, value in mapping.items()}


def segments_of(state: PartitionState) -> list[Segment]:
    """All segments of a partition that rests on no root."""
    tiles = list(state.tiles)
    assert all(isinstance(tile, Segment) for tile in tiles)
    return tiles  # type: ignore[return-value]
