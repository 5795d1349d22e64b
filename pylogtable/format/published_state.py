"""What the entries of a published table say about themselves [PUB-5]."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pylogtable.format.model import Count, Natural, Segment, StoredObject

#: The formats of `PublishedState`: 2 if the table hides rows. Older publishers refuse that.
PUBLISHED_FORMAT = 1
HIDING_FORMAT = 2


class PublishedState(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What an entry says about itself: the version of the topic that it shows, when that was
    committed, and the sum of its end offsets. `copies` are the sealed copies that the table shows,
    by the path of their segment [PUB-2]. `features` are those of the other format that the table
    has needed so far. `widened` has, by stored name, the types of a column in older files.
    `commit_id` is that of the last commit with effect up to the version; older states have none.
    `follows` names the entry before, where an entry is only right after that one [PUB-1]. If the
    entry `is_prompt`, a vacuum keeps the files that it removes without knowing the table [PUB-7].
    `view` is that of the topic's settings, and `hidden_rows` counts what is hidden for it [PUB-9].
    """

    format: Count = PUBLISHED_FORMAT
    topic_id: str
    version: Natural
    commit_id: str | None = None
    committed_at_ms: Natural
    offsets: Natural
    copies: dict[str, Annotated[tuple[Segment, ...], msgspec.Meta(min_length=1)]] = msgspec.field(
        default_factory=dict
    )
    features: tuple[str, ...] = ()
    widened: dict[str, tuple[str | dict[str, Any], ...]] = msgspec.field(default_factory=dict)
    follows: str | None = None
    is_prompt: bool = msgspec.field(name="prompt", default=False)
    view: Literal["records", "latest"] = "records"
    hidden_rows: Natural = 0
