"""Runs every file of `format_spec/vectors` but `partitioner.json`, which has a test of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import msgspec
import pytest

from pylogtable import errors
from pylogtable.append.combine_plan import OneAppend, append_in, may_be_taken, plan_combined
from pylogtable.append.plan import Repeated, plan_append
from pylogtable.arguments import NOT_GIVEN
from pylogtable.format import json_codec, paths
from pylogtable.format.config import describe_config, normalize
from pylogtable.format.group_model import GroupChange, GroupOffer, GroupState
from pylogtable.format.group_offer import decode_offer, name_of
from pylogtable.format.log_state import LogState
from pylogtable.format.model import (
    COMBINED_APPENDS,
    INLINE_BATCHES,
    Change,
    Commit,
    CopyOf,
    Field,
    MirroredTxn,
    Segment,
    StagedSegment,
    StoredObject,
    Totals,
    Txn,
)
from pylogtable.format.offers import Offer
from pylogtable.format.roots import from_root
from pylogtable.format.schema import check_fields, fits, to_arrow, widens
from pylogtable.format.snapshot import Snapshot, replay
from pylogtable.groups.membership_plan import remove
from pylogtable.groups.positions_plan import (
    Target,
    check_metadata,
    check_offsets,
    plan_commit,
    plan_delete,
    plan_expiry,
    plan_moves,
    plan_reset,
    unread_from,
)
from pylogtable.jobs.compaction_plan import plan_compaction, plan_swaps
from pylogtable.jobs.delete_records_plan import plan_delete_records
from pylogtable.jobs.erase_plan import MayMatch, plan_erase
from pylogtable.jobs.merge_plan import plan_merge
from pylogtable.jobs.retention_plan import plan_retention
from pylogtable.jobs.vacuum_plan import Listed, Needed, plan_vacuum
from pylogtable.limits import DEFAULT_LIMITS, Limits
from pylogtable.log.offers_plan import take
from pylogtable.mirror.plan import (
    CopyUnit,
    check_copy,
    placed,
    plan_arrival_commit,
    plan_arrivals,
    plan_promotion,
    plan_topic,
)
from pylogtable.mirror.removals_plan import Side, plan_removals
from pylogtable.read.plan import choose_partitions, plan_spans, plan_tasks
from pylogtable.segments.key_filter import WantedKeys
from pylogtable.storage.base import check_key
from pylogtable.storage.memory import MemoryStore
from pylogtable.topics.columns_plan import ColumnChanges
from pylogtable.topics.plan import (
    check_start_offsets,
    new_topic_info,
    plan_alter,
    plan_create,
    plan_guard,
)
from tests.builders import make_store
from tests.conformance.corpus import Vector, as_stored, int_keys, segments_of, vector_files, vectors


def run_paths(given: Vector) -> object:
    match given:
        case {"do": "check_topic_name", "name": name}:
            return paths.check_topic_name(name) is None
        case {"do": "check_group_name", "name": name}:
            return paths.check_group_name(name) is None
        case {"do": "parse_group_path", "path": path}:
            parsed = paths.parse_group_path(path)
            return None if parsed is None else list(parsed)
        case {"do": "decode_offer", "path": path}:
            named = paths.parse_group_offer_path(path)
            offer = None if named is None else decode_offer(named[1])
            assert offer is None or (named is not None and name_of(offer) == named[1])
            return None if offer is None else _wire(offer)
        case {"do": "collide", "names": [one, other]}:
            return paths.collide(one, other)
        case {"do": "segment_path", "partition": partition, "floor": floor, "id": file_id}:
            return paths.segment_path(partition, floor, file_id)
        case {"do": "check_segment_path", "path": path, "partition": partition}:
            return paths.check_segment_path(path, partition, source="a commit")
        case {"do": "check_leaf_id", "id": leaf_id}:
            return paths.check_leaf_id(leaf_id, source="a root") is None
        case {"do": "check_key", "key": key}:
            return check_key(key)
    rest = dict(given)
    return getattr(paths, rest.pop("do"))(*rest.values())


def run_codec(given: Vector) -> object:
    if "hex" in given:
        data = bytes.fromhex(given["hex"])
    else:
        data = (given["text"] if "text" in given else json.dumps(given["json"])).encode()
    if given["object"] == "group":
        return _wire(json_codec.decode_group(data, "g", given["number"]))
    if given["object"] == "hint":
        hint = json_codec.decode_hint(data)
        return None if hint is None else _wire(hint)
    if given["object"] == "root":
        root = json_codec.decode_root(data, given["version"])
        from_root(root)
        return _wire(root)
    commit = json_codec.decode_commit(data, given["version"])
    if commit.protocol is not None:
        json_codec.check_readable(commit.protocol)
        if given.get("use") == "write":
            json_codec.check_writable(commit.protocol)
    return _wire(commit)


def run_replay(given: Vector) -> object:
    state = _replayed(given)
    if state is None:
        return None
    found: dict[str, Any] = {
        "version": state.version,
        "topic_id": state.topic_id,
        "partition_count": len(state.partitions) if state.topic is None else state.topic.partitions,
        "partitions": [
            {
                "log_start": partition.log_start,
                "end": partition.end,
                "live": _wire(partition.live),
                **({"inline": _wire(partition.inline)} if partition.inline != Totals() else {}),
                "segments": [segment.path for segment in segments_of(partition)],
                **({"clean_end": partition.clean_end} if partition.clean_end else {}),
            }
            for partition in state.partitions
        ],
        "txns": {app_id: list(mark) for app_id, mark in state.txns.items()},
        **({"mirror": _wire(state.mirror)} if state.mirror is not None else {}),
    }
    return found if state.topic is not None else {**found, "deleted": True}


def run_rows(given: Vector) -> object:
    objects = MemoryStore()
    for commit in given["commits"]:
        objects.write(f"t/{paths.commit_path(commit['version'])}", as_stored(commit))
    table = make_store(objects=objects).topic("t").read().read_all()
    times = table["timestamp"].cast("int64")
    return table.set_column(table.column_names.index("timestamp"), "timestamp", times).to_pylist()


def run_plan_append(given: Vector) -> object:
    staged = msgspec.convert(given["staged"], tuple[StagedSegment, ...])
    txn = msgspec.convert(given["txn"], Txn | None)
    rows = bytes.fromhex(given["rows_hex"]) if "rows_hex" in given else None
    expected_last = given.get("expected_last", NOT_GIVEN)
    decided = plan_append(_live(given), staged, txn, rows, expected_last)
    if isinstance(decided, Repeated):
        return {"repeated": decided.commit_version}
    return _change(decided, "append")


def run_plan_combine(given: Vector) -> object:
    snapshot, own = _live(given), given["own"]
    others = []
    for offer in msgspec.convert(given["offers"], tuple[Offer, ...]):
        with suppress(errors.CorruptTopicError):
            others.append(append_in(offer, snapshot))
    change = plan_combined(
        snapshot,
        OneAppend(
            files=msgspec.convert(own["staged"], tuple[StagedSegment, ...]),
            rows=None,
            txn=msgspec.convert(own.get("txn"), Txn | None),
            expected_last=NOT_GIVEN,
            staged_at_ms=given["now_ms"],
            offer=own.get("offer"),
        ),
        [one for one in others if may_be_taken(snapshot, one, given["now_ms"])],
        DEFAULT_LIMITS,
    )
    return _change(change, "append")


def run_plan_read(given: Vector) -> object:
    state = _live(given)
    partitions = choose_partitions(state, given["partitions"])
    starts, ends = int_keys(given["starts"]), int_keys(given["ends"])
    return [
        {
            "path": task.segment.path,
            "start": task.start,
            "end": task.end,
            "row_groups": list(task.row_groups),
        }
        for task in plan_tasks(_with_leaves(state), plan_spans(state, partitions, starts, ends))
    ]


def run_administer(given: Vector) -> object:
    if given["do"] == "create":
        fields = msgspec.convert(given["fields"], list[Field])
        topic = new_topic_info(
            fields, given["key"], given["partitions"], given["config"], given["now_ms"]
        )
        starts = int_keys(given.get("start_offsets", {}))
        check_start_offsets(starts, topic.partitions)
        change = plan_create(_replayed(given), topic, "here", starts)
        return _change(_without_newer_features(change), "create")
    state = _live(given)
    if given["do"] == "delete_records":
        change = plan_delete_records(_with_leaves(state), int_keys(given["offsets"]))
        return _change(change, "delete_records")
    if given["do"] == "guard":
        source = msgspec.convert(given["copy_of"], CopyOf)
        guard = plan_guard(state, source, partitions=given.get("partitions"))
        return None if guard is None else _change(guard, "alter")
    change = plan_alter(
        state,
        app_id=given.get("app_id"),
        partitions=given.get("partitions"),
        config=given.get("config", {}),
        columns=ColumnChanges(
            drop=given.get("drop", []),
            rename=given.get("rename", {}),
            widen=given.get("widen", {}),
            add=msgspec.convert(given.get("add_fields", []), list[Field]),
        ),
    )
    return _change(change, "alter")


def run_plan_retention(given: Vector) -> object:
    keep_from = None if given["keep_from"] is None else int_keys(given["keep_from"])
    change = plan_retention(_with_leaves(_live(given)), given["now_ms"], keep_from)
    return None if change is None else _change(change, "retention")["log_starts"]


def run_plan_clean(given: Vector) -> object:
    state = _live(given)
    work = plan_compaction(
        _with_leaves(state),
        given["partition"],
        given["now_ms"],
        force=given["force"],
        keep_from=given.get("keep_from"),
    )
    if given["do"] == "clean":
        return work and {
            "log_start": work.log_start,
            "dirty_from": work.dirty_from,
            "inputs": [segment.path for segment in work.inputs],
            "clean_end": work.clean_end,
            "expire_before_us": work.expire_before_us,
            "expired_tombstones": [s.path for s in work.inputs if work.tombstones_expired(s)],
        }
    assert work is not None
    config = state.config
    groups = plan_swaps(work, given["survivors"], config.delete_retention_ms, config.segment_bytes)
    return [
        {
            "inputs": [segment.path for segment in group.inputs],
            "delete_horizon_ms": group.delete_horizon_ms,
            "rewrites": group.rewrites,
        }
        for group in groups
    ]


def run_plan_merge(given: Vector) -> object:
    works = plan_merge(_with_leaves(_live(given)), given["partition"])
    return [[segment.path for segment in work.inputs] for work in works]


def run_plan_erase(given: Vector) -> object:
    state = _live(given)
    may_match: MayMatch = list
    if given["keys"] is not None:
        may_match = WantedKeys(state.info, list(map(bytes.fromhex, given["keys"]))).may_match
    works = plan_erase(
        _with_leaves(state), given["partition"], given["end"], may_match, given["searched"]
    )
    return [segment.path for work in works for segment in work.inputs]


def run_plan_positions(given: Vector) -> object:
    do = given["do"]
    if do == "unread":
        states = [s for s in map(_group_state, given["states"]) if s is not None]
        return {str(number): at for number, at in unread_from(states, _live(given)).items()}
    state = _group_state(given["state"])
    now_ms = given["now_ms"]
    change: GroupChange | None
    if do == "commit":
        seen = _group_state(given["seen"])
        view = {} if seen is None else seen.positions
        offsets = check_offsets(int_keys(given["offsets"]), _live(given))
        check_metadata(given["metadata"])
        change = plan_commit("g", state, view, offsets, given["metadata"], now_ms)
    elif do == "reset":
        targets = {number: Target(**at) for number, at in int_keys(given["targets"]).items()}
        moves = plan_moves("g", state, targets, _live(given))
        change = plan_reset("g", state, moves, now_ms)
        wanted = {m.partition: bool(m.note) for m in moves}
        return {"warns": [n for n, warns in wanted.items() if warns], **_wire(change)}
    elif do == "delete":
        change = plan_delete("g", state, now_ms)
    elif do == "remove":
        change = remove(state, "g", given["member"])
    elif do == "take":
        assert state is not None
        fields = {name: getattr(state, name) for name in GroupChange.__struct_fields__}
        offers = msgspec.convert(given["offers"], list[GroupOffer], strict=False)
        change = take(GroupChange(**fields), offers, now_ms)
    else:
        assert do == "expire"
        change = plan_expiry(state, given["older_than_ms"], now_ms)
    return None if change is None else _wire(change)


def run_plan_vacuum(given: Vector) -> object:
    listing = [Listed(*entry) for entry in given["listing"]]
    needed = given["needed"]
    garbage = plan_vacuum(
        listing,
        Needed(
            segments=frozenset(needed["segments"]),
            leaves=frozenset(needed["leaves"]),
            root_version=needed["root_version"],
            txn_commits=frozenset(needed["txn_commits"]),
        ),
        given["old_before_ms"],
    )
    kinds = {
        "roots": garbage.roots,
        "commits": garbage.commits,
        "leaves": garbage.leaves,
        "segments": garbage.segments,
        **({"offers": garbage.offers} if garbage.offers else {}),
    }
    in_order = [entry.key for entry in garbage]
    assert in_order == [entry.key for entries in kinds.values() for entry in entries]
    return {kind: [entry.key for entry in entries] for kind, entries in kinds.items()}


def run_plan_mirror(given: Vector) -> object:
    """`source` and `copy` are commits. Counting needs no file here: cut segments are dense."""
    source, copy = (_live({"commits": given[name]}) for name in ("source", "copy"))
    if given["do"] == "promote":
        return _change(plan_promotion(copy), "promote")
    mirror = check_copy(copy, source, "memory://copy")
    if given["do"] == "topic":
        change = plan_topic(copy, source, mirror)
        return None if change is None else _change(change, "mirror")
    if given["do"] == "removals":
        sides = [Side(_with_leaves(state), _no_count) for state in (copy, source)]
        found = plan_removals(*sides, given["partition"])
        return [
            {"inputs": [s.path for s in stretch.inputs], "units": _units(stretch.units)}
            for stretch in found
        ]
    state = _with_leaves(source)
    if (most := given.get("max_units")) is not None:
        state = replace(state, limits=Limits(mirror_units=most, mirror_first_units=most))
    arrivals = plan_arrivals(copy, state, allow_gaps=given["allow_gaps"])
    if given["do"] == "arrivals":
        return {"units": _units(arrivals.units), "is_all": arrivals.is_all}
    segments = [placed(unit.whole, unit.start) for unit in arrivals.units if unit.whole]
    txns = [
        MirroredTxn(app_id=app_id, version=mark.txn_version) for app_id, mark in source.txns.items()
    ]
    change = plan_arrival_commit(
        _with_leaves(copy), source, mirror, segments, txns, is_all=arrivals.is_all
    )
    return None if change is None else _change(change, "mirror")


def _units(units: Iterable[CopyUnit]) -> list[Vector]:
    return [
        {
            "partition": unit.partition,
            "offsets": [unit.start, unit.end],
            "pieces": [[piece.segment.path, piece.start, piece.end] for piece in unit.pieces],
            "whole": unit.whole is not None,
        }
        for unit in units
    ]


def run_types(given: Vector) -> object:
    match given:
        case {"do": "compare", "given": one, "wanted": other}:
            return {"fits": fits(one, other), "widens": widens(one, other)}
        case {"do": "arrow", "type": wire}:
            return str(to_arrow(wire))
    return check_fields(msgspec.convert(given["fields"], list[Field]), given["key"]) is None


def run_config(given: Vector) -> object:
    if given["do"] == "in_force":
        return describe_config(given["stored"])
    return normalize(given["settings"])


RUNNERS: dict[str, Callable[[Vector], object]] = {
    "paths": run_paths,
    "codec": run_codec,
    "replay": run_replay,
    "rows": run_rows,
    "plan_append": run_plan_append,
    "plan_combine": run_plan_combine,
    "plan_read": run_plan_read,
    "administer": run_administer,
    "plan_retention": run_plan_retention,
    "plan_clean": run_plan_clean,
    "plan_merge": run_plan_merge,
    "plan_erase": run_plan_erase,
    "plan_positions": run_plan_positions,
    "plan_vacuum": run_plan_vacuum,
    "plan_mirror": run_plan_mirror,
    "types": run_types,
    "config": run_config,
}
ALL = [(name, vector) for name in RUNNERS for vector in vectors(name)]


@pytest.mark.parametrize(
    ("name", "vector"), [pytest.param(n, v, id=f"{n}: {v['name']}") for n, v in ALL]
)
def test_the_library_agrees_with_the_vector(name: str, vector: Vector) -> None:
    if "error" not in vector:
        assert RUNNERS[name](vector["input"]) == vector["expected"]
        return
    with pytest.raises(errors.LogTableError) as caught:
        RUNNERS[name](vector["input"])
    assert type(caught.value).__name__ == vector["error"]["class"]
    assert getattr(caught.value, "rule", None) == vector["error"].get("rule")


def test_every_vector_file_is_run_by_a_test() -> None:
    assert vector_files() == sorted([*RUNNERS, "partitioner"])


@pytest.mark.parametrize("name", vector_files())
def test_every_vector_is_complete(name: str) -> None:
    corpus = vectors(name)
    assert len(corpus) >= 10
    assert len({vector["name"] for vector in corpus}) == len(corpus)
    for vector in corpus:
        assert vector["rules"], vector["name"]
        assert vector.keys() - {"expected", "error", "levels"} == {"name", "rules", "input"}
        assert ("expected" in vector) != ("error" in vector), vector["name"]


def _commits(given: Vector) -> list[Commit]:
    """Through the codec, as from a store; a sequence may be wrong and still be of decodable
    commits, so each is decoded under the version it says."""
    return [json_codec.decode_commit(as_stored(c), c["version"]) for c in given["commits"]]


def _group_state(body: Vector | None) -> GroupState | None:
    return body and json_codec.decode_group(json.dumps(body).encode(), "g", body["number"])


def _replayed(given: Vector) -> Snapshot | None:
    return replay(None, _commits(given))


def _live(given: Vector) -> Snapshot:
    state = _replayed(given)
    assert state is not None
    return state


def _wire(stored: StoredObject) -> Any:
    """As it is written, without what is at its default."""
    body = json.loads(msgspec.json.encode(stored))
    return _without_defaults(body)


def _without_defaults(body: Any) -> Any:
    """Some defaults may be written or left out; both mean the same [COMMIT-1]."""
    if isinstance(body, list):
        return [_without_defaults(part) for part in body]
    if isinstance(body, dict):
        return {
            key: _without_defaults(value)
            for key, value in body.items()
            if (key, value) not in (("row_groups", [0]), ("dropped", {}))
        }
    return body


def _change(change: Change, operation: str) -> Any:
    body = _wire(change)
    assert body.pop("operation") == operation
    return body


def _without_newer_features(change: Change) -> Change:
    """These vectors are older than two features, which a creator SHOULD announce [INL-5],
    [OFFER-1]."""
    assert change.protocol is not None
    known = tuple([f for f in change.protocol.reader_features if f != INLINE_BATCHES])
    assert COMBINED_APPENDS in change.protocol.writer_features
    protocol = msgspec.structs.replace(
        change.protocol, reader_features=known, writer_features=known
    )
    return msgspec.structs.replace(change, protocol=protocol)


def _no_count(segment: Segment, offset: int) -> NoReturn:
    raise AssertionError(f"{segment.path} is to be counted from {offset}")


def _with_leaves(snapshot: Snapshot) -> LogState:
    return LogState(snapshot, _no_leaf)


def _no_leaf(leaf_id: str, checksum: str | None) -> NoReturn:
    raise AssertionError(f"no vector has a leaf, and {leaf_id} was asked for")
