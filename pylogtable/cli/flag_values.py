"""Values of Kafka's and kcat's flags as our words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: What the flag `--property` of Kafka's console consumer may print, in the order of its fields.
_FIELDS = {
    "timestamp": "%T",
    "partition": "Partition:%p",
    "offset": "Offset:%o",
    "headers": "%h",
    "key": "%k",
    "value": "%s",
}
#: Fields that are printed in another way here: Kafka adds the type of a timestamp, and writes
#: headers with a colon.
_OTHERWISE = ("timestamp", "headers")


class NoSuchValueError(Exception):
    """The value has no meaning here. The message says what to do."""


def offsets(values: Sequence[str]) -> list[str]:
    """Where to begin, and kcat's time to end at."""
    return [_bound(value) for value in values]


def _bound(value: str) -> str:
    if value.startswith("e@"):
        return f"--to={value[1:]}"
    return f"--from={value.removeprefix('s') if value.startswith('s@') else value}"


def printed(properties: Sequence[str]) -> list[str]:
    """How the console consumer prints a record, with these properties."""
    given = _by_name(properties)
    known = [f"print.{field}" for field in _FIELDS]
    registry = given.get("schema.registry.url")
    if registry is not None:
        raise NoSuchValueError(
            f"use pylogtable consume --value-format avro --schema-registry {registry}; json-schema "
            "and protobuf are formats too"
        )
    _check_known(given, [*known, "key.separator", "line.separator"],
                 "use --format or --output json")  # fmt: skip
    chosen = [
        field
        for field in _FIELDS
        if _is_true(given.get(f"print.{field}"), default=field == "value")
    ]
    between = _literal(given.get("key.separator", "\t"))
    end = _literal(given.get("line.separator", "\n"))
    text = between.join(_FIELDS[field] for field in chosen) + end
    other = [field for field in chosen if field in _OTHERWISE]
    if other:
        raise NoSuchValueError(
            f"the {' and the '.join(other)} would look different here; if that is fine, use "
            f"--format '{text}'"
        )
    if chosen == ["key", "value"] and "line.separator" not in given:
        return [_key_separator(given)]
    return [] if text == "%s\\n" else [f"--format={text}"]


def parsed(properties: Sequence[str]) -> list[str]:
    """How the console producer parses a line, with these properties."""
    given = _by_name(properties)
    _check_known(given, ["parse.key", "key.separator", "null.marker"],
                 "use --header, or --json with objects")  # fmt: skip
    words = []
    has_keys = _is_true(given.get("parse.key"), default=False)
    if has_keys and "null.marker" in given:
        raise NoSuchValueError("only values can be null here: use --key-separator and --null-value")
    if has_keys:
        words.append(_key_separator(given))
    if "null.marker" in given:
        words.append(f"--null-value={given['null.marker']}")
    return words


def settings(lists: Sequence[str]) -> list[str]:
    """Settings, as kafka-configs takes them: `a=1,b=[x,y]`."""
    found = []
    for text in lists:
        for pair in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text):
            name, equals, value = pair.strip().partition("=")
            is_list = value.startswith("[") and value.endswith("]")
            found.append(f"--config={name}{equals}{value[1:-1] if is_list else value}")
    return found


def names(lists: Sequence[str]) -> list[str]:
    """Names of settings, as kafka-configs takes them: `a,b`."""
    return [f"--unset={name.strip()}" for text in lists for name in text.split(",")]


def entity(types: Sequence[str]) -> list[str]:
    """Only topics have settings."""
    for kind in types:
        if kind not in ("topics", "topic"):
            raise NoSuchValueError("only topics have settings here")
    return []


def isolation(levels: Sequence[str]) -> list[str]:
    """Only what is committed is read."""
    for level in levels:
        if level != "read_committed":
            raise NoSuchValueError("nobody sees records here that are not committed; leave it out")
    return []


def serdes(given: Sequence[str]) -> list[str]:
    """How kcat reads values and keys."""
    words = []
    for text in given:
        of, equals, serde = text.partition("=")
        if not equals:
            raise NoSuchValueError(
                f"for values it is --value-format {text} --schema-registry URL, and for keys "
                f"--key-format {text}; for a store of that name, write --store ./{text}"
            )
        if serde != "avro":
            raise NoSuchValueError(
                "it unpacks no numbers here: bytes are printed as they are, and --output json "
                f"shows them in base64; for formats with a schema, use --{of}-format"
            )
        words.append(f"--{of}-format=avro")
    return words


def group_id(properties: Sequence[str]) -> list[str]:
    """The group, given as a property of the client."""
    return [f"--group={text.partition('=')[2]}" for text in properties]


def offset_reset(properties: Sequence[str]) -> list[str]:
    """Where a group without a position begins, given as a property of the client."""
    where = properties[-1].partition("=")[2]
    raise NoSuchValueError(
        f"use --from {where}; a group that has a position begins there without --from"
    )


def _by_name(properties: Sequence[str]) -> Mapping[str, str]:
    """Properties by name. Several may stand in one value, with commas between them, if all of them
    are properties."""
    found = {}
    for text in properties:
        for pair in re.split(r",(?=[a-z]+\.[a-z.]+=)", text):
            name, equals, value = pair.partition("=")
            if not equals:
                raise NoSuchValueError("it is not name=value")
            found[name] = value
    return found


def _check_known(given: Mapping[str, str], known: Sequence[str], way_out: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise NoSuchValueError(f"there is no {', '.join(unknown)} here; {way_out}")


def _is_true(text: str | None, *, default: bool) -> bool:
    return default if text is None else text.strip().lower() == "true"


def _key_separator(given: Mapping[str, str]) -> str:
    return "--key-separator=" + _escaped(given.get("key.separator", "\t"))


def _escaped(text: str) -> str:
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _literal(text: str) -> str:
    """The text as a part of a format."""
    return _escaped(text.replace("%", "%%"))
