"""What an import, a redrive or an export was asked for about values, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pylogtable.arguments import check_flags, check_mapping, check_name
from pylogtable.errors import InvalidRequestError

FORMATS = ("avro", "json-schema", "protobuf", "json")
DEAD_LETTER, FAIL = "dead-letter", "fail"


@dataclass(frozen=True)
class ValueOptions:
    """How values, and perhaps keys, are decoded, or encoded by an export. Without a `key_format`
    keys stay bytes."""

    value_format: str
    key_format: str | None = None
    schema_registry: str | None = None
    value_schema: str | None = None
    key_schema: str | None = None
    registry_settings: Mapping[str, Any] = field(default_factory=dict)
    keep_raw: bool = False
    on_error: str = DEAD_LETTER


def checked_value_options(
    *,
    value_format: str | None,
    key_format: str | None = None,
    schema_registry: str | None = None,
    value_schema: str | None = None,
    key_schema: str | None = None,
    registry_settings: Mapping[str, Any] | None = None,
    keep_raw: bool = False,
    on_error: str = DEAD_LETTER,
) -> ValueOptions | None:
    """The options; None for an import of bytes. Raises if they do not fit together."""
    check_flags(keep_raw=keep_raw)
    settings = {} if registry_settings is None else registry_settings
    check_mapping("registry_settings", settings, "{'basic.auth.user.info': 'name:password'}")
    texts = {
        "key_format": key_format,
        "schema_registry": schema_registry,
        "value_schema": value_schema,
        "key_schema": key_schema,
    }
    for name, text in texts.items():
        if text is not None:
            check_name(name, text)
    if on_error not in (DEAD_LETTER, FAIL):
        raise InvalidRequestError(
            f"`on_error` must be {DEAD_LETTER!r} or {FAIL!r}, not {on_error!r}"
        )
    if value_format is None:
        given = [name for name, text in texts.items() if text is not None]
        given += ["registry_settings"] * bool(settings) + ["keep_raw"] * keep_raw
        given += ["on_error"] * (on_error != DEAD_LETTER)
        if given:
            raise InvalidRequestError(
                f"`{given[0]}` (--{given[0].replace('_', '-')}) is given without `value_format` "
                "(--value-format): without it values and keys stay bytes"
            )
        return None
    for name, kind in (("value_format", value_format), ("key_format", key_format)):
        if kind is not None and kind not in FORMATS:
            raise InvalidRequestError(f"`{name}` must be one of {', '.join(FORMATS)}, not {kind!r}")
    if key_schema is not None and key_format is None:
        raise InvalidRequestError(
            "`key_schema` (--key-schema) is given without `key_format` (--key-format)"
        )
    _check_registry_is_used(schema_registry, value_format, value_schema, key_format, key_schema)
    return ValueOptions(
        value_format,
        key_format,
        schema_registry,
        value_schema,
        key_schema,
        settings,
        keep_raw,
        on_error,
    )


def _check_registry_is_used(
    registry: str | None,
    value_format: str,
    value_schema: str | None,
    key_format: str | None,
    key_schema: str | None,
) -> None:
    """Raise if files have all schemas. A file for one part, and a registry for the other, is fine;
    plain JSON needs neither, and may be given the registry of other topics."""
    if registry is None or (value_schema is None and value_format != "json"):
        return
    if key_format not in (None, "json") and key_schema is None:
        return
    part = "value" if value_schema is not None else "key"
    if (value_schema if part == "value" else key_schema) is not None:
        raise InvalidRequestError(
            f"`schema_registry` (--schema-registry) and `{part}_schema` (--{part}-schema) are "
            "given together, and nothing would be asked of the registry: give one of them"
        )
