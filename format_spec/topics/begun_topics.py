"""Golden topics whose first commits a vacuum has removed: what a reader can begin at."""

from __future__ import annotations

from typing import Any

from golden_place import Place, at, change_object, commit_name
from indexed_topics import rooted

ROOT = 2


def _of_another_topic(commit: dict[str, Any]) -> None:
    commit["topic_id"] = "another"


def _remove_commits(place: Place, count: int) -> None:
    for version in range(count):
        place.manifest(commit_name(version)).unlink()


def void_after_root(place: Place) -> None:
    rows = rooted(place)
    _remove_commits(place, ROOT)
    change_object(place.manifest(commit_name(ROOT + 1)), _of_another_topic)
    place.expect(versions={"3": at({0: 0}, {0: 4}, rows[:4])})
    place.case(
        "A void commit follows the root, whose own commit is still there",
        ["COMMIT-11", "ROOT-1"],
    )


def corrupt_void_after_root(place: Place) -> None:
    rooted(place)
    _remove_commits(place, ROOT + 1)
    change_object(place.manifest(commit_name(ROOT + 1)), _of_another_topic)
    place.case(
        "A commit of another topic follows the root, whose own commit is gone: nobody can tell "
        "which topic is the right one",
        ["COMMIT-3", "COMMIT-11", "ROOT-6"],
        when="open",
        error={"class": "CorruptTopicError", "rule": "COMMIT-3"},
    )


def corrupt_no_start(place: Place) -> None:
    rooted(place)
    _remove_commits(place, ROOT)
    path = place.manifest(f"{ROOT:020d}.root.json")
    path.write_bytes(path.read_bytes()[:-50])
    place.case(
        "The only root is cut short, and the first commits are gone",
        ["COMMIT-3", "ROOT-2", "ROOT-6"],
        when="open",
        error={"class": "CorruptTopicError", "rule": "COMMIT-3"},
    )


def corrupt_commit_of_root(place: Place) -> None:
    rows = rooted(place)
    _remove_commits(place, ROOT)
    path = place.manifest(commit_name(ROOT))
    path.write_bytes(path.read_bytes()[:-50])
    place.expect(versions={"3": at({0: 0}, {0: 5}, rows)})
    place.case(
        "The commit of the root's version is cut short: the root stands for it",
        ["COMMIT-9", "ROOT-1"],
        problems=["COMMIT-1"],
    )


BEGUN_TOPICS = (
    void_after_root,
    corrupt_void_after_root,
    corrupt_no_start,
    corrupt_commit_of_root,
)
