"""Opens consumers: which kind of member they are, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

from pylogtable.arguments import is_whole
from pylogtable.errors import InvalidRequestError
from pylogtable.format.paths import check_member_name
from pylogtable.groups.consumer import Consumer
from pylogtable.groups.dynamic_member import DynamicMember
from pylogtable.groups.group import Group
from pylogtable.groups.heart import Heart
from pylogtable.groups.member import Member, StaticMember
from pylogtable.groups.options import ConsumerOptions
from pylogtable.log.topic_log import TopicLog
from pylogtable.read.view import View


def open_consumer(
    topic_name: str,
    log: TopicLog,
    newest: Callable[[], View],
    options: ConsumerOptions,
    heart: Heart | None = None,
) -> Consumer:
    """A consumer of the topic of `log`. Opening it writes nothing. Consumers that share a `heart`
    have one thread for all of them."""
    options.check()
    group = Group(options.group, topic_name, log)
    member: Member
    if isinstance(options.member, str):
        check_member_name(options.member)
        heart = heart or Heart(log.runtime, options.max_poll_interval_ms)
        is_heard = bool(options.callbacks)
        member = DynamicMember(group, options.member, options.lease_ms, heart, is_heard=is_heard)
    else:
        member = StaticMember(group, *_static(options.member))
    return Consumer(topic_name, member, newest, log.runtime, options)


def _static(member: object) -> tuple[int, int]:
    """`(index, count)` of a static member. A single consumer is number 0 of 1."""
    match member:
        case None:
            return 0, 1
        case (int(index), int(count)) if is_whole(index) and is_whole(count) and 0 <= index < count:
            return index, count
    raise InvalidRequestError(
        "member must be a name, or (index, count) with 0 <= index < count such as (0, 3), "
        f"not {member!r}"
    )
