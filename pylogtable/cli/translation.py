"""A command line with flags of Kafka's tools or of kcat, in our words. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from pylogtable.cli.flag_values import NoSuchValueError
from pylogtable.cli.kafka_words import (
    ARGUMENTS,
    EVERY,
    FORMATS_OF_TOOLS,
    MODES,
    TOOLS,
    WORDS,
    Mode,
    Word,
)

#: Options of which no value is shown.
_SECRET = ("--storage-options", "--to-storage-options", "--other-storage-options",
           "--consumer-property", "--producer-property")  # fmt: skip


@dataclass
class Translated:
    """Arguments in our words, and what could not be said in them: a sentence for each. `is_whole`
    is true if the arguments are right without that."""

    args: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_whole: bool = True


@dataclass
class _Found:
    """A flag of others, and the values that it was given."""

    word: Word
    flag: str
    values: list[str]

    @property
    def shown(self) -> str:
        shown = [] if self.word.is_secret else self.values
        return f"{self.word.tool}'s {shlex.join([self.flag, *shown])}"


class _Reader:
    """Takes arguments apart as click does: `own` says of each option of the command whether it
    takes a value."""

    def __init__(self, command: str, args: Sequence[str], own: Mapping[str, bool]) -> None:
        self._own = own
        self._words = _words_of(command, own)
        self._rest = list(args)
        #: Our words as they are, and flags of others.
        self.parts: list[str | _Found] = []
        self.own_flags: set[str] = set()

    def read(self) -> None:
        while self._rest:
            token = self._rest.pop(0)
            if token == "--":
                self.parts += [token, *self._rest]
                self.own_flags.add(ARGUMENTS)
                return
            if token.startswith("--"):
                self._read_long(token)
            elif token.startswith("-") and len(token) > 1:
                self._read_cluster(token)
            else:
                self.parts.append(token)
                self.own_flags.add(ARGUMENTS)

    def _read_long(self, token: str) -> None:
        flag, equals, value = token.partition("=")
        word = self._word(flag, value if equals else self._next())
        if word is None:
            self._keep(token, flag, has_value=bool(equals))
        elif not equals:
            self._add(word, flag)
        elif word.metavar:
            self.parts.append(_Found(word, flag, [value]))
        else:
            self.parts.append(token)  # click says that it is wrong

    def _read_cluster(self, token: str) -> None:
        """Several short flags in one, the last perhaps with its value: `-efC`, `-c5`."""
        for at in range(1, len(token)):
            flag, tail = f"-{token[at]}", token[at + 1 :]
            word = self._word(flag, tail or self._next())
            if word is not None and word.metavar and tail:
                self.parts.append(_Found(word, flag, [tail]))
                return
            if word is not None:
                self._add(word, flag)
            elif self._own.get(flag, True):
                # It has the rest as its value, or there is no such flag.
                self._keep(f"{flag}{tail}", flag, has_value=bool(tail))
                return
            else:
                self._keep(flag, flag, has_value=False)

    def _add(self, word: Word, flag: str) -> None:
        values = [self._rest.pop(0)] if word.metavar and self._rest else []
        self.parts.append(_Found(word, flag, values))

    def _keep(self, token: str, flag: str, *, has_value: bool) -> None:
        self.parts.append(token)
        self.own_flags.add(flag)
        if self._own.get(flag, False) and not has_value and self._rest:
            self.parts.append(self._rest.pop(0))

    def _next(self) -> str | None:
        return self._rest[0] if self._rest else None

    def _word(self, flag: str, following: str | None) -> Word | None:
        for word in self._words.get(flag, ()):
            if word.applies is None or word.applies(following):
                return word
        return None


def translate(command: str, args: Sequence[str], own: Mapping[str, bool]) -> Translated:
    """The arguments of this command in our words."""
    reader = _Reader(command, args, own)
    reader.read()
    done = Translated()
    for part in _joined(reader.parts):
        if isinstance(part, str):
            done.args.append(part)
            continue
        problem = _problem(part, reader.own_flags)
        try:
            if problem is None:
                done.args += _our_words(part)
                continue
        except NoSuchValueError as error:
            problem = str(error)
        done.problems.append(f"{part.shown}: {problem}")
        done.is_whole = done.is_whole and part.word.can_be_left_out
    return done


def _words_of(command: str, own: Mapping[str, bool]) -> dict[str, list[Word]]:
    """The words of a command by flag. Our own flags win, unless a word says when it applies."""
    found: dict[str, list[Word]] = {}
    mine = (word for word in WORDS if command in word.commands)
    everywhere = (word for word in WORDS if EVERY in word.commands)
    for word in chain(mine, everywhere, _mode_words(command)):
        for flag in word.flags:
            if flag not in own or word.applies is not None:
                found.setdefault(flag, []).append(word)
    return found


def _mode_words(command: str) -> Iterator[Word]:
    """A mode that is the command itself asks for nothing, and any other is another command. That of
    the same tool comes first: `--list` of groups is not that of topics."""
    group = command.partition(" ")[0]
    for mode in sorted(MODES, key=lambda mode: mode.group != group):
        if not mode.has_value:
            is_same = mode.command == command
            says = f"that is `pylogtable {mode.command}` here"
            yield Word(mode.tool, (mode.flag,), "", (command,), "" if is_same else None, says)


def _joined(parts: Sequence[str | _Found]) -> Iterator[str | _Found]:
    """The parts. What is translated from all of its values comes first, once."""
    gathered: dict[int, _Found] = {}
    others: list[str | _Found] = []
    for part in parts:
        if isinstance(part, str) or not callable(part.word.ours):
            others.append(part)
        else:
            first = gathered.setdefault(id(part.word), part)
            if first is not part:
                first.values += part.values
    yield from gathered.values()
    yield from others


def _problem(found: _Found, own_flags: set[str]) -> str | None:
    word = found.word
    if word.metavar and not found.values:
        return f"it needs a value, {word.metavar}" if word.works else word.says.format(value="")
    if word.ours is None:
        return word.says.format(value=shlex.join(found.values))
    contradicts = sorted(word.against & own_flags)
    if contradicts:
        given = "an argument" if contradicts == [ARGUMENTS] else contradicts[0]
        return f"{word.says}; give it or {given}, not both"
    return None


def _our_words(found: _Found) -> list[str]:
    ours, metavar = found.word.ours, found.word.metavar
    assert ours is not None
    if callable(ours):
        return ours(found.values)
    if metavar and ours == metavar:
        return found.values
    option, *value = shlex.split(ours) or [""]
    if not value:
        return [option] if option else []
    is_filled = metavar != "" and value == [metavar]
    return [f"{option}={found.values[0] if is_filled else value[0]}"]


def mode_of(group: str, args: Sequence[str]) -> Mode | None:
    """The command that a flag among the arguments of a group of commands means."""
    flags = [arg for arg in args[: args.index("--")] if arg] if "--" in args else list(args)
    groups = (group,) if group else ("", "groups" if "--group" in flags else "topics")
    modes = [mode for mode in MODES if mode.group in groups]
    return next((mode for flag in flags for mode in modes if mode.flag == flag), None)


def without_mode(mode: Mode, args: Sequence[str]) -> list[str]:
    """The arguments without the flag that is a command."""
    if mode.has_value:
        return list(args)
    at = list(args).index(mode.flag)
    return [*args[:at], *args[at + 1 :]]


def tool_named(typed: str) -> str | None:
    """Our command, or group of commands, for a program of Kafka's or kcat; "" is ours itself."""
    return TOOLS.get(_tool_name(typed))


def words_of_tool(typed: str) -> list[str]:
    """Our words for what such a program does without a flag."""
    word = FORMATS_OF_TOOLS.get(_tool_name(typed))
    return [] if word is None else [word]


def _tool_name(typed: str) -> str:
    return typed.rpartition("/")[2].removesuffix(".sh").removesuffix(".bat")


def command_line(path: str, args: Sequence[str]) -> str:
    """The line as one types it, without secrets."""
    shown = []
    for before, arg in zip(["", *args], args, strict=False):
        option, equals, _ = arg.partition("=")
        is_secret = option in _SECRET
        shown.append(f"{option}=…" if is_secret and equals else "…" if before in _SECRET else arg)
    quoted = [word if word.endswith("…") else _quoted(word) for word in shown]
    return " ".join(["pylogtable", *path.split(), *quoted])


def _quoted(word: str) -> str:
    """Quoted for a shell; only the value of an option, if it is one."""
    option, equals, value = word.partition("=")
    is_option = option.startswith("--") and bool(equals)
    return f"{option} {shlex.quote(value)}" if is_option else shlex.quote(word)
