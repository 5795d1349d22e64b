"""Errors can be pickled with all fields, and say what to do."""

from __future__ import annotations

import pickle

import pytest

import pylogtable
from pylogtable import errors

SAMPLES: list[tuple[errors.LogTableError, list[str]]] = [
    (errors.LogTableError("m"), ["m"]),
    (errors.InvalidRequestError("m"), ["m"]),
    (
        errors.OffsetOutOfRangeError(3, 17, 20, 30),
        ["offset 17", "partition 3", "[20, 30)", "start_offsets()"],
    ),
    (errors.TopicNotFoundError("no topic at x"), ["no topic at x"]),
    (errors.TopicExistsError("topic at x"), ["topic at x"]),
    (errors.SchemaMismatchError("m"), ["m"]),
    (errors.CommitConflictError("m"), ["m"]),
    (
        errors.CommitUnknownError("abc", 9),
        ["commit abc", "version 9", "find_commit('abc', 9)", "txn="],
    ),
    (
        errors.CorruptTopicError("_manifest/x.json", "LOG-2", "detail"),
        ["_manifest/x.json", "[LOG-2]", "detail"],
    ),
    (errors.UnsupportedFormatError("m"), ["m"]),
    (errors.StorageError("m"), ["m"]),
    (
        errors.SegmentGoneError("partition=0/x.parquet", "no such file"),
        ["partition=0/x.parquet", "no such file", "newest version", "verify()"],
    ),
]


def test_every_error_class_is_public_and_has_a_sample_here() -> None:
    classes = {
        thing
        for thing in vars(errors).values()
        if isinstance(thing, type) and issubclass(thing, errors.LogTableError)
    }
    assert classes == {type(error) for error, _ in SAMPLES}
    for one in classes:
        assert getattr(pylogtable, one.__name__) is one
        assert one.__doc__


@pytest.mark.parametrize(("error", "parts"), SAMPLES, ids=[type(e).__name__ for e, _ in SAMPLES])
def test_errors_keep_fields_and_message_when_pickled(
    error: errors.LogTableError, parts: list[str]
) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)
    assert again.args == error.args
    for part in parts:
        assert part in str(error)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (errors.InvalidRequestError, ValueError),
        (errors.TopicNotFoundError, FileNotFoundError),
        (errors.TopicExistsError, FileExistsError),
        (errors.TopicNotFoundError, errors.InvalidRequestError),
        (errors.TopicExistsError, errors.InvalidRequestError),
        (errors.SchemaMismatchError, errors.InvalidRequestError),
        (errors.OffsetOutOfRangeError, errors.InvalidRequestError),
    ],
)
def test_errors_are_also_the_matching_builtin_errors(one: type, other: type) -> None:
    assert issubclass(one, other)


def test_unknown_outcome_is_not_a_storage_error() -> None:
    assert not issubclass(errors.CommitUnknownError, errors.StorageError)
    assert not issubclass(errors.CommitConflictError, errors.InvalidRequestError)
