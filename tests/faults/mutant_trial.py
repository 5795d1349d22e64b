"""Uses a damaged topic in every way, and compares each answer with the oracle's.

The oracle is the reference reader on the damaged topic. Where damage can be passed over, the answer
of the sound topic is right too: a root, a leaf or the hint only saves work, a root makes up for the
commits below it, and a file may be damaged where nobody looks. Anything else must be an error of
the library's own.

    python -m tests.faults.mutant_trial SEED FIRST END     tries these mutants, one line each
"""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from pylogtable.errors import CorruptTopicError, LogTableError
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import EPOCH, Clock
from tests.faults.mutant_choice import mutant
from tests.faults.mutant_oracle import (
    Answers,
    answers,
    entry_of,
    light,
    place_of_row,
    plain,
    questions,
    root_decodes,
    sound_answers,
    without_frames,
)
from tests.faults.mutation_bases import NAME, Place, base
from tests.faults.mutations import Mutant, kind_of
from tests.memory import peak_bytes, reset_peak

MEMORY_BYTES = 2**30  # how much a mutant may add to the memory before it
ADDRESS_SPACE_BYTES = 16 * 2**30
# What no reader can check without reading everything, once the checksum fits: promises about keys
# [SEG-7], [LOG-9], the order of rows of which only keys are read [SEG-11], and a root's log starts,
# totals and times, if leaves are needed to see that they are wrong [ROOT-3], [ROOT-5]. By question:
# a pattern of the mutant.
PROMISES = {
    "latest": r"hashed_over|clean|\.key|\.partitions|rows \d+ and \d+ swapped",
    "bounds": r"root.*\.log_start",
    "count": r"\.live",
    "times": r"root.*(\.runs\.\d+\.3:|\.log_start)",
}


@dataclass
class Verdict:
    """What a mutant came to. It fails if there is a fault."""

    mutant: Mutant
    outcome: str = ""
    faults: list[str] = field(default_factory=list)
    #: Questions with wrong answers that only a check of everything can find.
    excused: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Oracle:
    """The answers that are right, and whether an error is right as well."""

    right: list[Answers]
    may_fail: bool


def oracle_of(made: Mutant) -> Oracle:
    name, sound = made.base.name, sound_answers(made.base.name)
    changed = {k for k in made.base.objects if made.objects.get(k) != made.base.objects[k]}
    commits = [int(key[10:30]) for key in changed if kind_of(key) == "commit"]
    damaged = [int(key[10:30]) for key in changed if kind_of(key) == "root"]
    roots = [int(key[10:30]) for key in made.objects if kind_of(key) == "root"]
    if made.kind == "hint":
        return Oracle([sound], may_fail=False)
    if made.kind == "group":
        return Oracle([answers(name, made.objects)], may_fail=False)
    if made.kind in ("root", "leaf"):
        gone = name.endswith("vacuumed")
        may_fail = gone or made.kind == "leaf"
        if made.kind == "root":
            may_fail |= any(root_decodes(made.objects, version) for version in damaged)
        lies = [answers(name, made.objects, root) for root in roots]
        return Oracle([sound, *(lie for lie in lies if lie["open"] is None)], may_fail)
    found = answers(name, made.objects)
    passed_over = made.kind == "segment" or min(commits, default=-1) <= max(roots, default=-1)
    return Oracle([found, sound] if passed_over else [found], may_fail=True)


def trial(made: Mutant) -> Verdict:
    verdict = Verdict(made)
    oracle = oracle_of(made)
    place = place_with(made.objects, made.base.now_ms)
    found = library_answers(made.base.name, place)
    verdict.outcome = _outcome(made, found)
    for question, answer in found.items():
        fault = _fault(oracle, question, answer, made)
        if fault and question in PROMISES and re.search(PROMISES[question], str(made)):
            verdict.excused.append(question)
        elif fault:
            verdict.faults.append(f"{question}: {fault}")
    if "sound" not in place.store.topics():
        verdict.faults.append("topics() does not know the sound topic beside it")
    if found["open"] is None:
        _verify(made, place, found, verdict)
        _commit_groups(made, place)
        _append(made, place, found, oracle, verdict)
    return verdict


def _fault(oracle: Oracle, question: str, answer: Any, made: Mutant) -> str | None:
    about_groups = made.kind == "group" and " of " in question
    known = [right[question] for right in oracle.right if question in right]
    if isinstance(answer, LogTableError):
        expected = any(isinstance(right, Exception) for right in known)
        if oracle.may_fail or about_groups or expected:
            return None
        return f"{type(answer).__name__} where an answer is known: {answer}"
    if (not known and question in ("history", "described")) or question.startswith("lag of"):
        return None
    if any(_is_file(right) for right in known):
        known.append(sound_answers(made.base.name).get(question))  # what is refused may be read
    if any(type(right) is type(answer) and right == answer for right in known):
        return None
    said = [f"{type(right).__name__}: {right}" for right in known] or oracle.right[0]["open"]
    return f"{answer!r:.300} and not {said!r:.600}"


def _is_file(right: Any) -> bool:
    """Whether the oracle refuses a data file, whose entry may be wrong where the file is right."""
    if isinstance(right, light.Corrupt):
        return "@" in right.path or not right.path.startswith("_manifest")
    return isinstance(right, light.FileGone)


def _outcome(made: Mutant, found: Answers) -> str:
    if isinstance(found["open"], Exception):
        return f"{type(found['open']).__name__} at open"
    if isinstance(found["rows"], Exception):
        return f"{type(found['rows']).__name__} at read"
    sound = sound_answers(made.base.name)
    return "the sound rows" if found["rows"] == sound["rows"] else "the oracle's rows"


# --- use ------------------------------------------------------------------------------------


def place_with(objects: Mapping[str, bytes], now_ms: int) -> Place:
    """A store with the topic, and a sound one beside it."""
    store = MemoryStore()
    for name, held in ((NAME, objects), ("sound", base("shifted").objects)):
        for key, data in held.items():
            store.write(f"{name}/{key}", data)
    place = Place(store, Clock(now_ms))
    for _ in range(0x1000):
        next(place.ids)  # those of the topic are taken
    return place


def _asked(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except LogTableError as error:
        return without_frames(error)


def library_answers(name: str, place: Place) -> Answers:
    asked = questions(name)
    topic = _asked(lambda: place.store.topic(NAME))
    if isinstance(topic, Exception):
        return {"open": topic}

    def bounds() -> dict[int, tuple[int, int]]:
        ends = topic.end_offsets()
        return {number: (start, ends[number]) for number, start in topic.start_offsets().items()}

    def offsets() -> Any:
        moments = [EPOCH + timedelta(microseconds=time) for time in asked.times]
        return [topic.offsets_for_time(moment) for moment in moments]

    def latest() -> Any:
        return sorted(plain(topic.latest()), key=place_of_row) if topic.at().key else None

    found: Answers = {
        "open": None,
        "version": _asked(lambda: topic.version),
        "bounds": _asked(bounds),
        "segments": _asked(lambda: [entry_of(e) for e in topic.segments().to_pylist()]),
        "rows": _asked(lambda: _rows(topic)),
        "rows of before": _asked(lambda: plain(topic.read(version=asked.version).read_all())),
        "count": _asked(topic.count),
        "times": _asked(offsets),
        "latest": _asked(latest),
        "history": _asked(lambda: topic.history().num_rows and None),
        "described": _asked(lambda: str(topic.describe()) and None),
    }
    for number, (low, high) in asked.ranges.items():
        found[f"partition {number}"] = _asked(lambda n=number: _rows(topic, n))
        found[f"range of {number}"] = _asked(
            lambda n=number, lo=low, hi=high: _rows(topic, n, lo, hi)
        )
    for group in asked.groups:
        found[f"positions of {group}"] = _asked(lambda g=group: topic.group(g).positions())
        found[f"lag of {group}"] = _asked(lambda g=group: str(topic.group(g).lag()) and None)
    return found


def _rows(topic: Topic, *where: Any) -> list[dict[str, Any]]:
    return plain(topic.read(*where).read_all())


def _verify(made: Mutant, place: Place, found: Answers, verdict: Verdict) -> None:
    """What a read refuses or cannot see, a check of the data finds."""
    topic = _asked(lambda: place.store.topic(NAME))
    _asked(topic.verify)
    refused = isinstance(found["rows"], CorruptTopicError)
    if made.number % 4 and not refused and not verdict.excused:
        return
    report = _asked(lambda: topic.verify(data=True))
    if report and not isinstance(report, Exception):
        if refused:
            verdict.faults.append(f"verify(data=True) says sound, read says {found['rows']}")
        verdict.faults += [f"{question}: verify says sound" for question in verdict.excused]


def _commit_groups(made: Mutant, place: Place) -> None:
    topic = _asked(lambda: place.store.topic(NAME))
    for group in questions(made.base.name).groups if made.kind == "group" else ():
        _asked(lambda g=group: topic.group(g).commit({0: 1}))


def _append(made: Mutant, place: Place, found: Answers, oracle: Oracle, verdict: Verdict) -> None:
    """What could be read before is unchanged, and what was appended can be read, by both."""
    topic = _asked(lambda: place.store.topic(NAME))
    before = _asked(topic.end_offsets)
    result = _asked(lambda: topic.append(made.base.more))
    if isinstance(result, Exception) or isinstance(before, Exception):
        return
    again = _asked(lambda: place.store.topic(NAME))
    if isinstance(again, Exception):
        verdict.faults.append(f"append: the topic does not open afterwards: {again}")
        return
    if isinstance(found["rows"], list):
        kept = _asked(lambda: [r for r in _rows(again) if r["offset"] < before[r["partition"]]])
        if kept != found["rows"]:
            verdict.faults.append(f"append: rows changed: {kept!r:.300} {found['rows']!r:.300}")
    appended = 0
    for number, (start, end) in result.offsets.items():
        new = _asked(lambda n=number, lo=start, hi=end: _rows(again, n, lo, hi))
        if isinstance(new, Exception) or start != before[number]:
            verdict.faults.append(f"append: [{start}, {end}) of {number}: {new}")
        else:
            appended += len(new)
    if not verdict.faults and appended != made.base.more.num_rows:
        verdict.faults.append(f"append: {appended} of {made.base.more.num_rows} rows are there")
    objects = {
        info.key: place.objects.below(NAME).read(info.key) or b""
        for info in place.objects.below(NAME).list()
    }
    replayed = answers(made.base.name, made.objects)
    # A root may make up for a commit that is another topic's now. Without it the log is another.
    if replayed["open"] is None and replayed["rows"] == found["rows"]:
        now = answers(made.base.name, objects)
        if isinstance(now["open"], Exception) or now["version"] <= replayed["version"]:
            verdict.faults.append(f"append: the commits no longer replay: {now['open']}")
        elif isinstance(now["rows"], list) and len(now["rows"]) != len(replayed["rows"]) + appended:
            verdict.faults.append("append: the commits say other rows")


# --- one process, many mutants --------------------------------------------------------------


def tried(made: Mutant) -> Verdict:
    before = reset_peak()
    try:
        verdict = trial(made)
    except Exception:
        verdict = Verdict(made, "a raw error", [traceback.format_exc(limit=-6)])
    if (grown := peak_bytes() - before) > MEMORY_BYTES:
        verdict.faults.append(f"the peak of memory grew by {grown >> 20} MiB")
    return verdict


def main() -> None:
    """A line before each mutant and one after it, so that a hang or a crash has a number."""
    seed, first, end = map(int, sys.argv[1:])
    logging.disable()  # roots that are passed over
    pa.set_cpu_count(1)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    for number in range(first, end):
        made = mutant(seed, number)
        print(json.dumps({"begin": str(made)}), flush=True)
        verdict = tried(made)
        line = {
            "number": number,
            "mutant": str(verdict.mutant),
            "kind": verdict.mutant.kind,
            "outcome": verdict.outcome,
            "faults": verdict.faults,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
