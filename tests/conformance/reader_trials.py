"""What the readers of `format_spec` must refuse, and how: golden topics and vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.conformance.corpus import TOPICS, Vector, as_stored, golden, golden_cases, vectors

LEVELS: dict[str, list[str]] = json.loads((TOPICS / "levels.json").read_text(encoding="utf-8"))
KINDS = {"CorruptTopicError": "Corrupt", "UnsupportedFormatError": "Unsupported"}
NOWHERE = Path("nowhere")

# The reader already has [COMMIT-11]: such a commit is void.
REPLAY = [
    v
    for v in vectors("replay")
    if v["name"] != "a commit of another topic id" and "reader" in v.get("levels", ["reader"])
]
CODEC = [v for v in vectors("codec") if v["input"]["object"] != "hint" and "use" not in v["input"]]


@dataclass(frozen=True)
class Trial:
    """A step that must fail with this kind of error, by this rule; None: by whichever."""

    name: str
    run: Callable[[Any], object]  # with the class of the reader
    kind: str
    rule: str | None

    def passes(self, light: ModuleType, level: Any) -> bool:
        try:
            self.run(level)
        except (light.Refusal, Found) as error:
            is_kind = type(error).__name__ == self.kind
            return is_kind and self.rule in (None, getattr(error, "rule", None))
        except Exception:
            return False  # the reader was not ready for what it should have refused
        return False


def failing_topics(level: str) -> list[str]:
    """The rest is for checkers and writers."""
    return [
        case
        for case in golden_cases()
        if golden(case, "case.json").get("when") in ("open", "read") and level in LEVELS[case]
    ]


def topic_trials(level: str) -> Iterator[Trial]:
    for case in failing_topics(level):
        error = golden(case, "case.json")["error"]
        yield Trial(case, _reads(TOPICS / case / "topic"), KINDS[error["class"]], error.get("rule"))


def vector_trials() -> Iterator[Trial]:
    """For the full level. A light reader leaves many of them to it."""
    for vector in REPLAY:
        if "error" in vector:
            yield _trial(vector, lambda level, v=vector: replayed(level, v))
    for vector in CODEC:
        if "error" in vector:
            trial = _trial(vector, lambda level, v=vector: decoded(level, v))
            # A root is passed over, whichever rule it breaks: the reader checks paths first.
            is_tail = vector["input"]["object"] == "root" and trial.rule == "SEG-10"
            yield Trial(trial.name, trial.run, trial.kind, None if is_tail else trial.rule)


def large_rows_trial() -> Trial:
    """Too large for a vector: the rows of a commit have more than 1 MiB."""

    def run(level: Any) -> object:
        (vector,) = (v for v in REPLAY if v["name"] == "an inline entry without rows")
        *before, commit = vector["input"]["commits"]
        return replayed(
            level, {"input": {"commits": [*before, {**commit, "rows": "A" * 1_400_000}]}}
        )

    return Trial("rows of more than 1 MiB", run, "Corrupt", "INL-5")


def kept_trials() -> Iterator[Trial]:
    """What is absent, or asked for in vain, and topics that are read in spite of their damage."""
    whole, gone = TOPICS / "shifted" / "topic", TOPICS / "corrupt-segment-missing" / "topic"
    gap = TOPICS / "corrupt-gap-in-commits" / "topic"
    yield Trial("a commit beyond a gap", _reads(gap), "Corrupt", "COMMIT-3")
    yield Trial("no topic", lambda level: level(NOWHERE).open(), "NoTopic", None)
    yield Trial("a later version", lambda level: level(whole).open(99), "InvalidRequest", None)
    yield Trial("a file that is missing", _reads(gone), "FileGone", None)
    yield Trial("an offset beyond the end", _reads_to(whole, 10**6), "OutOfRange", None)
    for case in golden_cases():
        if case.startswith("corrupt-") and golden(case, "expected.json") is not None:
            yield Trial(case, _finds_rows(case), "Found", None)


class Found(Exception):
    """The rows were the right ones."""


def _finds_rows(case: str) -> Callable[[Any], object]:
    def run(level: Any) -> object:
        reader = level(TOPICS / case / "topic")
        for text, expected in golden(case, "expected.json")["versions"].items():
            if list(reader.rows(reader.open(int(text)))) != expected["rows"]:
                return None
        raise Found

    return run


def _reads_to(folder: Path, end: int) -> Callable[[Any], object]:
    def run(level: Any) -> object:
        reader = level(folder)
        return list(reader.read(reader.open(), 0, 0, end))

    return run


def _trial(vector: Vector, run: Callable[[Any], object]) -> Trial:
    error = vector["error"]
    return Trial(vector["name"], run, KINDS[error["class"]], error.get("rule"))


def _reads(folder: Path) -> Callable[[Any], object]:
    def run(level: Any) -> object:
        reader = level(folder)
        return list(reader.rows(reader.open()))

    return run


def replayed(level: Any, vector: Vector) -> Any:
    reader, state = level(NOWHERE), None
    for commit in vector["input"]["commits"]:
        state = reader.apply(state, reader.decode_commit(as_stored(commit), commit["version"]))
    return state


def decoded(level: Any, vector: Vector) -> Any:
    reader, given = level(NOWHERE), vector["input"]
    if "hex" in given:
        data = bytes.fromhex(given["hex"])
    else:
        data = (given["text"] if "text" in given else json.dumps(given["json"])).encode()
    if given["object"] == "group":
        return reader.decode_group(data, given["number"], "_groups/g/0.json")
    if given["object"] == "root":
        return reader.decode_root(data, given["version"])
    return reader.decode_commit(data, given["version"])
