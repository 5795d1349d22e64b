"""Which mutant has which number: the same seed gives the same mutants."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.faults.inline_mutations import change_inline_rows
from tests.faults.mutation_bases import NAMES, Base, base
from tests.faults.mutations import (
    Mutant,
    change_bytes,
    change_json,
    change_leaf,
    change_segment,
    copy_segment,
    kind_of,
)

#: How often each kind of object is damaged. `rows` are the records in commits.
WEIGHTS = {
    "commit": 36,
    "root": 16,
    "leaf": 14,
    "hint": 3,
    "group": 8,
    "segment": 23,
    "rows": 12,
}
_CHOICES: dict[str, list[Callable[[random.Random, Mutant], None]]] = {
    "commit": [change_bytes, change_json, change_json, change_json],
    "root": [change_bytes, change_json, change_json, change_json],
    "group": [change_bytes, change_json, change_json],
    "hint": [change_bytes, change_json],
    "leaf": [change_bytes, change_leaf, change_leaf],
    "segment": [change_bytes, change_segment, change_segment, copy_segment],
    "rows": [change_inline_rows],
}


def mutant(seed: int, number: int) -> Mutant:
    rng = random.Random(f"{seed}/{number}")
    kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    of = base(rng.choice([name for name in NAMES if keys_of(base(name), kind)]))
    key = rng.choice(keys_of(of, kind))
    made = Mutant(number, of, kind, key, dict(of.objects))
    rng.choice(_CHOICES[kind])(rng, made)
    return made


def keys_of(of: Base, kind: str) -> list[str]:
    """The objects of this kind, in order."""
    if kind == "rows":
        commits = (key for key in of.objects if kind_of(key) == "commit")
        return sorted(key for key in commits if b'"rows":"' in of.objects[key])
    return sorted(key for key in of.objects if kind_of(key) == kind)
