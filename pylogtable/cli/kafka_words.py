"""What the flags of Kafka's tools and of kcat mean here. The table: pure data.

People type what their fingers know. A flag that means the same works; of any other the message says
our word. Nothing is guessed: a flag that is not in this table is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pylogtable.cli import flag_values

#: Makes our words of all values that a flag was given.
Translation = Callable[[Sequence[str]], list[str]]
EVERY = "*"
#: What kcat's -s takes. Without key= or value= a folder may have the same name.
SERDE = re.compile(r"(?:key|value)=.*|avro|json|json-schema|protobuf")
#: A contradiction of a flag: arguments, whatever they are.
ARGUMENTS = "arguments"


@dataclass(frozen=True)
class Word:
    """A flag of `tool`, with other spellings of it, at some of our commands. `metavar` names its
    value; it is empty for a flag without one."""

    tool: str
    flags: tuple[str, ...]
    metavar: str
    commands: tuple[str, ...]
    #: Our words, with the metavar for the value; or what makes them; None if we have none.
    ours: str | Translation | None
    #: Why it works, or the rest of the message if it does not.
    says: str
    #: The command line is right without the flag.
    can_be_left_out: bool = False
    #: Its value may be a secret, and is not shown.
    is_secret: bool = False
    #: Our own flags that contradict it.
    against: frozenset[str] = frozenset()
    #: Whether it is this flag, and not ours of the same name. It gets what follows.
    applies: Callable[[str | None], bool] | None = None

    @property
    def works(self) -> bool:
        """True if it means something here."""
        return self.ours is not None


def _works(
    tool: str, commands: str, flags: str, ours: str | Translation, says: str = "", **more: object
) -> Word:
    """A flag that means the same as these words of ours."""
    return _word(tool, commands, flags, ours, says, more)


def _anyway(tool: str, commands: str, flags: str, says: str, **more: object) -> Word:
    """A flag that asks for what the command does anyway."""
    return _word(tool, commands, flags, "", says, more)


def _leave_out(tool: str, commands: str, flags: str, says: str, **more: object) -> Word:
    """A flag without a meaning here."""
    return _word(tool, commands, flags, None, says, {"can_be_left_out": True, **more})


def _instead(tool: str, commands: str, flags: str, says: str) -> Word:
    """A flag that needs other words here, which `says` names."""
    return _word(tool, commands, flags, None, says, {})


def _word(
    tool: str,
    commands: str,
    flags: str,
    ours: str | Translation | None,
    says: str,
    more: dict[str, object],
) -> Word:
    spellings = tuple(part for part in flags.split() if part.startswith("-"))
    metavar = "".join(part for part in flags.split() if not part.startswith("-"))
    names = tuple(name.strip() for name in commands.split(","))
    return Word(tool, spellings, metavar, names, ours, says, **more)  # type: ignore[arg-type]


def _is_format(following: str | None) -> bool:
    """kcat's -f takes a format, and every format has a sign with % in it. Ours takes nothing."""
    return following is not None and "%" in following


def _is_alone(following: str | None) -> bool:
    """kcat's -Z takes nothing. Ours takes a text, which is no option."""
    return following is None or re.match(r"--?[A-Za-z]", following) is not None


def _is_serde(following: str | None) -> bool:
    """kcat's -s takes a serde. Ours takes a store, and no store is called key=…"""
    return following is not None and bool(SERDE.fullmatch(following))


def _is_group(following: str | None) -> bool:
    return following is not None and following.startswith("group.id=")


def _is_offset_reset(following: str | None) -> bool:
    return following is not None and following.startswith("auto.offset.reset=")


_READ = "consume, tail"
_OF_ONE = "topics create, topics alter, consume, tail, produce"
_OF_MANY = "topics describe, topics delete, offsets"
_OF_OTHERS = (
    "delete-records, segments, history, verify, merge, compact, retain, vacuum, erase, publish, "
    "unpublish, kafka export, kafka redrive"
)
_GROUP = "groups describe, groups delete, groups reset"
_FOLLOWING = frozenset({"--follow", "-f"})
_NO_BROKER = "there is no broker here; leave it out, and give the store with --store"
_NO_CLIENT = "there is no broker and no client of one here; leave it out"
_COPIES = "it has no meaning here: the object store keeps the copies; leave it out"

WORDS: tuple[Word, ...] = (
    # Which topic, partition and group
    _works("Kafka", f"{_OF_ONE}, {_OF_MANY}, {_OF_OTHERS}", "--topic TOPIC", "TOPIC"),
    _works("kcat", f"{_READ}, produce, {_OF_MANY}", "-t TOPIC", "TOPIC"),
    _works("kcat", "kafka import", "-t TOPIC", "--topic TOPIC"),
    _works("kcat", "consume, tail, produce, offsets", "-p N", "--partition N"),
    _works("Kafka", "offsets", "--partitions LIST", "--partition LIST"),
    _instead("Kafka", "offsets", "--topic-partitions LIST",
             "give the topics, and --partition 0,2-4"),
    _works("Kafka", _GROUP, "--group GROUP", "GROUP"),
    _works("kcat", _READ, "-G GROUP", "--group GROUP"),
    _anyway("Kafka", "groups describe", "--all-groups", "without GROUP it shows all groups",
            against=frozenset({ARGUMENTS})),
    _instead("Kafka", "groups delete, groups reset", "--all-groups",
             "name the groups; `pylogtable groups list` shows them"),
    _works("Kafka", _READ, "--consumer-property NAME=VALUE", flag_values.group_id,
           "`--group GROUP` for `group.id=GROUP`", applies=_is_group),
    _works("kcat", _READ, "-X NAME=VALUE", flag_values.group_id,
           "`--group GROUP` for `group.id=GROUP`", applies=_is_group),
    _works("Kafka", _READ, "--consumer-property NAME=VALUE", flag_values.offset_reset,
           "of `auto.offset.reset` the message says the `--from`", applies=_is_offset_reset),
    _works("kcat", _READ, "-X NAME=VALUE", flag_values.offset_reset,
           "of `auto.offset.reset` the message says the `--from`", applies=_is_offset_reset),
    # Where to begin and to end
    _works("Kafka", _READ, "--from-beginning", "--from earliest"),
    _works("Kafka", _READ, "--offset OFFSET", flag_values.offsets, "`--from OFFSET`"),
    _works("kcat", _READ, "-o OFFSET", flag_values.offsets,
           "`--from OFFSET`; `s@` and `e@` before milliseconds are `--from` and `--to`"),
    _works("Kafka", _READ, "--max-messages N", "--count N"),
    _works("kcat", _READ, "-c N", "--count N"),
    _anyway("kcat", "consume", "-e", "it ends at the last record", against=_FOLLOWING),
    _works("kcat", "tail", "-e", "--to latest"),
    _works("kcat", _READ, "-f FORMAT", "--format FORMAT", "if there is a `%` in it",
           applies=_is_format),
    _anyway("tail(1)", "tail", "-f --follow -F", "it follows"),
    # How to print
    _works("Kafka", _READ, "--property --formatter-property NAME=VALUE", flag_values.printed,
           "`print.key`, `key.separator`, `print.value`, `print.partition`, `print.offset` and "
           "`line.separator` print as Kafka does, and a null as nothing; of others the message "
           "says the `--format`"),
    _works("kcat", f"{_READ}, topics list, topics describe, offsets", "-J", "--output json"),
    _instead("kcat", _READ, "-D TEXT",
             "put it at the end of --format, such as --format '%s{value}'"),
    _instead("kcat", _READ, "-Z",
             "a null is printed as nothing; --output json tells it from empty"),
    _anyway("kcat", f"{_READ}, produce", "-u", "nothing is held back"),
    _anyway("kcat", f"{_READ}, produce, topics describe, offsets", "-q",
            "it prints no more than that"),
    _instead("Kafka", _READ, "--formatter CLASS",
             "records are printed as --format or --output says"),
    _instead("Kafka", _READ, "--key-deserializer --value-deserializer CLASS",
             "bytes are printed as they are; --output json shows those that are no text in base64"),
    _works("kcat", "consume", "-s SERDE", flag_values.serdes,
           "`value=avro` is `--value-format avro`, and `key=avro` is `--key-format avro`; of "
           "others the message says what to do. The name of a folder that exists is a store",
           applies=_is_serde),
    _works("kcat", "consume", "-r URL", "--schema-registry URL"),
    _works("Kafka", _READ, "--isolation-level LEVEL", flag_values.isolation,
           "`read_committed`: nobody sees what is not committed"),
    _instead("Kafka", _READ, "--include --whitelist PATTERN",
             "give one topic; run it once for each"),
    _leave_out("Kafka", _READ, "--skip-message-on-error", "it has no meaning here; leave it out"),
    # What to append
    _works("Kafka", "produce", "--property --reader-property NAME=VALUE", flag_values.parsed,
           "`parse.key` and `key.separator`, or `null.marker`; of others the message says what to "
           "do"),
    _works("kcat", "produce", "-Z", "--null-value ''",
           "without a text after it: empty values are null", applies=_is_alone),
    _instead("kcat", "produce", "-D TEXT",
             "records are lines; make them: tr {value} '\\n' | pylogtable produce …"),
    _instead("kcat", "produce", "-l FILE", "lines come from standard input: < {value}"),
    _instead("kcat", "produce", "-k KEY", "put the key into each line, and give --key-separator"),
    _instead("kcat", "produce", "-c N", "cut the input: head -n {value} | pylogtable produce …"),
    _instead("kcat", "produce", "-z CODEC",
             "a topic has one: pylogtable topics alter TOPIC --config compression.type={value}"),
    _instead("Kafka", "produce", "--compression-codec CODEC",
             "a topic has one: pylogtable topics alter TOPIC --config compression.type={value}"),
    _anyway("Kafka", "produce", "--sync", "the next batch waits for the commit of this one"),
    _leave_out("Kafka", "produce", "--request-required-acks --acks N",
               "a commit is durable before it counts; leave it out"),
    _instead("Kafka", "produce", "--batch-size --max-memory-bytes N",
             "use --batch-bytes, in bytes of lines"),
    _instead("Kafka", "produce", "--timeout MS", "use --linger, in seconds"),
    _instead("Kafka", "produce", "--line-reader CLASS", "lines are text, or objects with --json"),
    # Topics and their settings
    _works("Kafka", "topics alter", "--add-config LIST", flag_values.settings,
           "`--config NAME=VALUE` for each"),
    _works("Kafka", "topics alter", "--delete-config LIST", flag_values.names,
           "`--unset NAME` for each"),
    _works("Kafka", "topics alter, topics describe", "--entity-type TYPE", flag_values.entity,
           "`topics`: nothing else has settings here"),
    _works("Kafka", "topics alter, topics describe", "--entity-name TOPIC", "TOPIC"),
    _leave_out("Kafka", "topics create, topics alter", "--replication-factor N", _COPIES),
    _leave_out("Kafka", "topics create, topics alter", "--replica-assignment LIST", _COPIES),
    _instead("Kafka", "topics create", "--add-config LIST", "use --config NAME=VALUE for each"),
    _anyway("Kafka", "topics list, topics describe, offsets",
            "--exclude-internal --exclude-internal-topics", "there are no internal topics"),
    _leave_out("Kafka", "topics describe", "--under-replicated-partitions --unavailable-partitions "
               "--under-min-isr-partitions --at-min-isr-partitions", _COPIES),
    _instead("Kafka", "topics list", "--topic TOPIC", "use pylogtable topics describe {value}"),
    # Groups
    _anyway("Kafka", "groups describe", "--members --offsets", "it shows both"),
    _leave_out("Kafka", "groups list, groups describe", "--state",
               "no coordinator keeps one here; leave it out: members and lag are shown anyway"),
    _leave_out("Kafka", "groups list, groups describe, groups delete, groups reset", "--timeout MS",
               "no coordinator is asked here; leave it out"),
    # To Kafka and from it
    _works("Kafka", "kafka import, kafka export", "--bootstrap-server --broker-list HOST:PORT",
           "--bootstrap-servers HOST:PORT"),
    _works("kcat", "kafka import, kafka export", "-b HOST:PORT", "--bootstrap-servers HOST:PORT"),
    _works("kcat", "kafka import", "-X NAME=VALUE", "--consumer-property NAME=VALUE"),
    _works("kcat", "kafka export", "-X NAME=VALUE", "--producer-property NAME=VALUE"),
    _anyway("Kafka", "kafka import", "--from-beginning", "the first import begins there"),
    # At every command
    _leave_out("Kafka", EVERY,
               "--bootstrap-server --bootstrap-servers --broker-list --zookeeper HOST:PORT",
               _NO_BROKER),
    _leave_out("kcat", EVERY, "-b HOST:PORT", _NO_BROKER),
    _leave_out("kcat", EVERY, "-X NAME=VALUE", _NO_CLIENT, is_secret=True),
    _leave_out("Kafka", EVERY,
               "--consumer-property --producer-property --command-property NAME=VALUE",
               _NO_CLIENT, is_secret=True),
    _leave_out("Kafka", EVERY, "--command-config --consumer.config --producer.config FILE",
               _NO_CLIENT),
)  # fmt: skip


@dataclass(frozen=True)
class Mode:
    """A flag that is a command here. `groups` are those of our groups of commands whose tool has
    it; "" is the program itself. With a value, it is a word of the command as well."""

    tool: str
    flag: str
    group: str
    command: str
    has_value: bool = False


MODES: tuple[Mode, ...] = (
    Mode("Kafka", "--list", "topics", "topics list"),
    Mode("Kafka", "--describe", "topics", "topics describe"),
    Mode("Kafka", "--create", "topics", "topics create"),
    Mode("Kafka", "--alter", "topics", "topics alter"),
    Mode("Kafka", "--delete", "topics", "topics delete"),
    Mode("Kafka", "--list", "groups", "groups list"),
    Mode("Kafka", "--describe", "groups", "groups describe"),
    Mode("Kafka", "--delete", "groups", "groups delete"),
    Mode("Kafka", "--delete-offsets", "groups", "groups delete"),
    Mode("Kafka", "--reset-offsets", "groups", "groups reset"),
    Mode("kcat", "-C", "", "consume"),
    Mode("kcat", "-G", "", "consume", has_value=True),
    Mode("kcat", "-P", "", "produce"),
    Mode("kcat", "-L", "", "topics describe"),
    Mode("kcat", "-Q", "", "offsets"),
)

#: The programs of Kafka, without .sh, and our command or group of commands.
TOOLS = {
    "kafka-topics": "topics",
    "kafka-configs": "topics",
    "kafka-consumer-groups": "groups",
    "kafka-console-consumer": "consume",
    "kafka-avro-console-consumer": "consume",
    "kafka-json-schema-console-consumer": "consume",
    "kafka-protobuf-console-consumer": "consume",
    "kafka-console-producer": "produce",
    "kafka-get-offsets": "offsets",
    "kafka-delete-records": "delete-records",
    "kafka-dump-log": "segments",
    "kafka-mirror-maker": "mirror",
    "connect-mirror-maker": "mirror",
    "kcat": "",
    "kafkacat": "",
}

#: The words that some of these mean as well.
FORMATS_OF_TOOLS = {
    f"kafka-{name}-console-consumer": f"--value-format={name}"
    for name in ("avro", "json-schema", "protobuf")
}

#: Other words for our commands. None of these destroys: what people mean is not sure.
COMMANDS = {
    "list": "topics list",
    "ls": "topics list",
    "describe": "topics describe",
    "create": "topics create",
    "alter": "topics alter",
    "config": "topics alter",
    "configs": "topics alter",
    "cat": "consume",
    "read": "consume",
    "subscribe": "consume",
    "follow": "tail",
    "append": "produce",
    "send": "produce",
    "write": "produce",
    "import": "kafka import",
    "export": "kafka export",
    "lag": "groups describe",
}
