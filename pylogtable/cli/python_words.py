"""What the library advises, in the words of the command line. Pure.

The library's errors and warnings advise calls of Python. On the command line a person would have to
translate them. This is the one place that does: messages keep one text, and whoever changes one is
told by a test if a call is left in it.
"""

from __future__ import annotations

import re
import shlex

#: What stands in a message of the library, as a regular expression, and what to say instead.
_PHRASES = (
    # Both are named: only ours is needed.
    (r"allow gaps \(allow_gaps=True, --allow-gaps\)", "give --allow-gaps"),
    (r"import with (--guard|--on-error dead-letter) \(\w+=[^)]*\)", r"import with \1"),
    (r"\(--keep-raw, keep_raw=True\)", "(--keep-raw)"),
    (r"call topic\.alter\([^)]*\), or run (pylogtable [^;]*)", r"run \1"),
    (r"call (?:topic\.)?promote\(\) first \(pylogtable topics promote\)",
     "first run pylogtable topics promote TOPIC"),
    (r"call (?:topic\.)?promote\((?:force=True)?\) \(pylogtable topics promote( --force)?\)",
     r"run pylogtable topics promote TOPIC\1"),
    (r"\((--[a-z-]+), [a-z_]+=True\)", r"(\1)"),
    (r" \(on_error='dead-letter'\)", ""),
    (r"promote with force=True \(--force\)", "promote with --force"),
    (r"retention='own' \((--retention own)\)", r"\1"),
    (r"use (--[a-z-]+) \(\w+=\w+\)", r"use \1"),
    (r"Call vacuum\(dry_run=True\) to see", "Run it without --yes to see"),
    (r"give force=True, or --force on the command line", "give --force"),
    (r"(`pylogtable groups remove-member`), in Python remove_member\(\)", r"\1"),
    (r"Run it again, or name the groups in Python: groups=\['billing'\]", "Run it again"),
    # Topics
    (r"(?:call )?topic\.alter\(config=\{'publish\.view': None\}\)",
     "pylogtable topics alter TOPIC --unset publish.view"),
    (r"(?:call )?topic\.alter\(config=\{'([\w.]+)': '?([^'}]+)'?\}\)",
     r"run pylogtable topics alter TOPIC --config \1=\2"),
    (r"use topic\.alter\(add_columns=\.\.\.\)",
     "use pylogtable topics alter TOPIC --add-column NAME:TYPE"),
    (r"with topic\.alter\(widen_columns=\.\.\.\)",
     "with pylogtable topics alter TOPIC --widen-column NAME:TYPE"),
    (r"topic\.alter\(rename_columns=\{'([^']*)': \.\.\.\}\)",
     r"pylogtable topics alter TOPIC --rename-column \1=NEW"),
    (r"topic\.alter\(rename_columns=\{\.\.\.: \.\.\.\}\)",
     "pylogtable topics alter TOPIC --rename-column OLD=NEW"),
    (r"create it with pylogtable\.open\(<store>\)\.create_topic\('([^']*)', partitions=\.\.\.\)",
     r"create it with pylogtable topics create \1 --partitions N"),
    (r"; open it with store\.topic\(\)", ""),
    (r"topic\.maintain\(dry_run=True\) says", "pylogtable maintain --topic TOPIC --dry-run says"),
    (r"topic\.alter\(\.\.\.\) changes it", "pylogtable topics alter TOPIC changes it"),
    (r"topic\.merge\(\) writes", "pylogtable merge TOPIC writes"),
    (r"topic\.verify\(\) lists", "pylogtable verify TOPIC lists"),
    (r"verify with data=True names", "pylogtable verify TOPIC --data names"),
    (r"topic\.unpublish\(\['iceberg'\]\)", "pylogtable unpublish TOPIC --format iceberg"),
    (r"topic\.publish\(\[\"iceberg\"\]\)", "pylogtable publish TOPIC --format iceberg"),
    (r"storage_options=\{'credentials': 'unity-catalog'\}",
     """--storage-options '{"credentials": "unity-catalog"}'"""),
    # Reads and appends
    (r"start_offsets\(\) and end_offsets\(\) give these bounds",
     "pylogtable offsets TOPIC, also with --time earliest, gives these bounds"),
    (r", topic\.end_offsets\(\),", " (pylogtable offsets TOPIC)"),
    (r"history\(\) lists", "pylogtable history TOPIC lists"),
    (r"topic\.read\(version=\.\.\.\) has all records of any version\. ", ""),
    (r"topic\.find_commit\(\S+, \S+\) gives the version if it landed and None if it never will; "
     r"append again only on None\. An append with txn=\(app_id, version\) may simply be repeated\.",
     "Once the store answers, pylogtable history TOPIC shows whether its records came. They may "
     "still come later, so append again only if they may be there twice."),
    # Groups and mirrors
    (r"positions\(\) shows", "pylogtable groups describe GROUP shows"),
    (r"Store\.groups\(\) lists the groups", "pylogtable groups list lists the groups"),
    (r"after its last poll\(\)", "after it last asked for records"),
    (r"poll\(\) (joins again|begins)", r"it \1"),
    (r" If several consumers read for this group, give each a name, such as member=\"worker-a\": "
     r"they share the partitions then\. A consumer without one reads them all\.", ""),
    (r"Call poll\(\) to join, and commit what it returns", "It joins when it asks for records"),
    (r"`config` \(([^)]*)\) is for copies with retention='own'",
     r"--config (\1) is for copies with --retention own"),
    (r"`config` is for a new copy", "--config is for a new copy"),
    (r"Change it with alter on the copy", "Change it by pylogtable topics alter on the copy"),
    (r"has to get retention='own' first, by a mirror without `config`",
     "has to get --retention own first, by a mirror without --config"),
    (r"retention='own'", "--retention own"),
)  # fmt: skip
_TABLE = tuple((re.compile(pattern), ours) for pattern, ours in _PHRASES)


#: What the library says of the topic that a command was given, whose name it does not know there.
_OF_THE_GIVEN_TOPIC = "is refused: this topic is a copy of"


def for_command_line(message: str, topic: str | None = None) -> str:
    """The message with commands and flags where the library names calls of Python, and with the
    name of the `topic` that the command was given, if it is about that one."""
    for pattern, ours in _TABLE:
        message = pattern.sub(ours, message)
    if topic is not None and _OF_THE_GIVEN_TOPIC in message:
        named = f"pylogtable topics promote {shlex.quote(topic)}"
        message = message.replace("pylogtable topics promote TOPIC", named)
    return message
