"""Thousands of damaged topics: every answer is the oracle's, or an error of the library's own.

Mutants are tried in processes of their own, so that a hang or a crash has the number of its mutant.
"""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders import contents, kafka
from tests.depth import new_seed, rounds
from tests.faults.mutant_choice import WEIGHTS, keys_of
from tests.faults.mutant_oracle import Objects, RememberingReader, questions, sound_answers
from tests.faults.mutant_trial import library_answers, place_with
from tests.faults.mutation_bases import NAME, NAMES, Place, base

# Each chunk makes the bases anew, in a process of its own.
MUTANTS = rounds(80, deep=700)
CHUNKS = rounds(1, deep=30)
# What is known to be wrong: a pattern of "mutant: fault", and the reason.
KNOWN: dict[str, str] = {
    r" of old-\S+: partition=\S+ flipped.*: the process died": "pyarrow ends the process when "
    "it reads some damaged footers. Older files have no checksum of the footer [SUM-3]",
}
PATIENCE_SECONDS = 600  # for one mutant, which takes some 50 ms: it hangs


@pytest.mark.parametrize("name", NAMES)
def test_library_and_reference_reader_agree_on_the_sound_topic(name: str) -> None:
    found = library_answers(name, place_with(base(name).objects, base(name).now_ms))
    expected = sound_answers(name)
    assert {question: found[question] for question in expected} == expected
    assert expected["rows"]
    assert questions(name).times


def test_the_bases_have_every_kind_of_object() -> None:
    for kind in WEIGHTS:
        assert any(keys_of(base(name), kind) for name in NAMES), kind


def test_what_the_oracle_remembers_is_not_told_of_other_records() -> None:
    """The same entry, with other records of the same size in its commit."""
    read = {}
    for keys in ("ba", "ab"):
        place = Place()
        config = {"inline.max.bytes": 4096}
        topic = place.store.create_topic(NAME, partitions=1, config=config)
        topic.append(kafka(list(keys), list("12")))
        folder: Any = Objects({k: v or b"" for k, v in contents(place.objects.below(NAME)).items()})
        reader = RememberingReader(folder)
        state = reader.open()
        (rows,) = reader.read(state, 0)
        read[b"".join(rows["key"].to_pylist())] = state["partitions"][0]["segments"]
    assert list(read) == [b"ba", b"ab"]
    assert read[b"ba"] == read[b"ab"]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damaged_topic_gives_right_answers_or_errors(chunk: int) -> None:
    seed = new_seed()
    first = chunk * MUTANTS
    verdicts = list(_tried(seed, first, first + MUTANTS))
    assert len(verdicts) == MUTANTS
    outcomes = Counter((verdict["kind"], verdict["outcome"]) for verdict in verdicts)
    print("\n".join(f"{count:6} {' '.join(of)}" for of, count in sorted(outcomes.items())))
    failures = [
        f"{verdict['mutant']}\n"
        + f"  again: python -m tests.faults.mutant_trial {seed} {number} {number + 1}\n  "
        + "\n  ".join(verdict["faults"])
        for verdict in verdicts
        if verdict["faults"] and not _is_known(verdict)
        for number in [verdict["number"]]
    ]
    assert not failures, f"{len(failures)} mutants:\n" + "\n".join(failures[:20])


def _is_known(verdict: dict[str, Any]) -> bool:
    said = [f"{verdict['mutant']}: {fault}" for fault in verdict["faults"]]
    return any(re.search(pattern, fault, re.DOTALL) for pattern in KNOWN for fault in said)


def _tried(seed: int, first: int, end: int) -> Iterator[dict[str, Any]]:
    """The verdict on each mutant; a process that hangs or dies is a verdict on its last one."""
    while first < end:
        command = [sys.executable, "-m", "tests.faults.mutant_trial", *map(str, (seed, first, end))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = _lines(process)
            begun = f"mutant {first}"
            try:
                while (line := lines.get(timeout=PATIENCE_SECONDS)) is not None:
                    said = json.loads(line)
                    begun = said.get("begin", begun)
                    if "outcome" in said:
                        yield said
                        first = said["number"] + 1
                fault = "the process died"
            except queue.Empty:
                process.kill()
                fault = "it hangs"
        if first < end:
            about = {"kind": "?", "outcome": fault, "faults": [fault]}
            yield {"number": first, "mutant": begun, **about}
            first += 1


def _lines(process: subprocess.Popen[str]) -> queue.Queue[str | None]:
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines
