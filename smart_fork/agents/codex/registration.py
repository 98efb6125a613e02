"""Codex' servers: the tables ``[mcp_servers.NAME]`` in ``config.toml``.

Seen with 0.169.0: a server gets HOME, PATH, TERM and the locale of Codex' environment, and what its own ``env`` says.
It is not ``required``: Codex would not start where smart-fork is broken.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from indexer.lazy import dataclass
from smart_fork.agents.registration import NAME, Registration, UnsuitableError, entry_in

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Statement:
    """Whole lines: a table's header, a key with its value, or blanks and comments (neither `table` nor `key`)."""

    text: str
    table: tuple[str, ...] | None = None
    key: str | None = None


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of `text`. Joined, they are `text` again."""
    lines = _LINE.findall(text)
    at = 0
    while at < len(lines):
        for end in range(at + 1, len(lines) + 1):
            piece = "".join(lines[at:end])
            try:
                read = tomllib.loads(piece)
            except tomllib.TOMLDecodeError:
                continue
            is_table = piece.lstrip().startswith("[")
            yield Statement(piece, tuple(_names(read))) if is_table else Statement(piece, key=next(iter(read), None))
            at = end
            break
        else:  # not reached for what is TOML as a whole
            raise ValueError("it is not plain TOML")


def _names(read: Any) -> Iterator[str]:
    while read:
        if isinstance(read, list):
            read = read[0]
            continue
        name, read = next(iter(read.items()))
        yield name


def line_end(text: str) -> str:
    """Return the line end used in a text."""
    return "\r\n" if "\r\n" in text else "\n"


_SERVERS = "mcp_servers"
_TABLE = (_SERVERS, NAME)
_DEFAULTS: Mapping[str, Any] = {"startup_timeout_sec": 30, "tool_timeout_sec": 300}
#: What Codex passes on of its own environment.
_PASSED_ON = ("HOME", "PATH", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "USER", "TMPDIR", "TZ")


class CodexRegistration(Registration):
    """See `Registration`. It believes a tool that says that it only reads.

    It takes a token over HTTP from a variable only, which nobody but a person sets.
    """

    client = ("codex-mcp-client", "2025-06-18")
    file = "config.toml"

    def skills(self) -> Path:
        """See `Registration.skills`: shared with other agents."""
        return Path.home() / ".agents" / "skills"

    def value(self, text: str | None) -> dict[str, Any] | None:
        return entry_in(_understood(text or ""), _SERVERS, "a table")

    def raw(self, text: str | None) -> str | None:
        """See `Registration.raw`: the tables of the entry, without comments behind the last key."""
        _, tables, _ = _parts(text or "") if self.value(text) is not None else ("", [], "")
        return "".join(one.text for one in tables) or None

    def put(self, text: str | None, entry: Mapping[str, Any]) -> str:
        text = text or ""
        there = self.value(text)
        if there is None:
            end = line_end(text)
            gap = "" if not text else end if text.endswith("\n") else end * 2
            made = text + gap + end.join([f"[{_SERVERS}.{NAME}]", *_lines(entry), ""])
        else:
            before, tables, after = _parts(text)
            made = before + "".join(one.text for one in _merged(tables, there, entry, line_end(text))) + after
        return _checked(made, text, dict(entry))

    def has_servers(self, text: str | None) -> bool:
        """See `Registration.has_servers`: a table needs none."""
        return text is not None

    def restore(self, text: str, raw: str | None, *, had_servers: bool = True) -> str:
        if self.value(text) is None:
            return text
        before, _, after = _parts(text)
        if raw is not None:
            return _checked(before + raw + after, text, _understood(raw)[_SERVERS][NAME])
        end = line_end(text)
        if before.endswith(end * 2) and (not after or after.startswith(end)):
            before = before.removesuffix(end)  # the line that was left blank for it
        return _checked(before + after, text, None)

    def wanted(self, words: Sequence[str], env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        entry = super().wanted(words, env, {**_DEFAULTS, **(before or {})})
        from smart_fork.agents import AGENTS

        # Without these the server would look elsewhere than whoever sets it up.
        folders = {name: env[name] for name in ("SMART_FORK_HOME", *AGENTS.home_variables()) if env.get(name)}
        if folders:
            entry["env"] = folders | dict((before or {}).get("env", {}))
        return entry

    def passed_on(self, env: Mapping[str, str]) -> dict[str, str]:
        return {name: env[name] for name in _PASSED_ON if name in env}


def _understood(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnsuitableError(f"it is not plain TOML: {error}") from error


def _parts(text: str) -> tuple[str, list[Statement], str]:
    """Split the text into the part before the entry's tables, the tables, and the rest.

    Raises:
        UnsuitableError: the entry is not written as tables that stand together.
    """
    all_of_it = list(statements(text))
    ours = [False] * len(all_of_it)
    inside = False
    for at, one in enumerate(all_of_it):
        if one.table is not None:
            inside = one.table[:2] == _TABLE
        ours[at] = inside
    if True not in ours:
        raise UnsuitableError(f"{_SERVERS}.{NAME} is not written as a table [{_SERVERS}.{NAME}]")
    first, last = ours.index(True), len(ours) - 1 - ours[::-1].index(True)
    while all_of_it[last].table is None and all_of_it[last].key is None:
        last -= 1  # a comment behind the last key belongs to what follows
    if not all(ours[first : last + 1]):
        raise UnsuitableError(f"the tables of {_SERVERS}.{NAME} are not next to each other")
    joined = ["".join(one.text for one in part) for part in (all_of_it[:first], all_of_it[last + 1 :])]
    return joined[0], all_of_it[first : last + 1], joined[1]


def _merged(
    tables: list[Statement], there: Mapping[str, Any], entry: Mapping[str, Any], end: str
) -> Iterator[Statement]:
    """The tables with what `entry` says otherwise. What is new stands right below the header."""
    changed = {key: value for key, value in entry.items() if there.get(key) != value}
    own = 0
    for one in tables:
        own += one.table == _TABLE
        if own == 1 and one.key in changed and one.table is None:
            continue
        yield one if one.text.endswith("\n") else Statement(one.text + end, one.table, one.key)
        if one.table == _TABLE:
            for line in _lines(changed):
                yield Statement(line + end)


def _lines(entry: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_toml(value)}" for key, value in entry.items()]


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    # A JSON string is a TOML string, but for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _checked(made: str, before: str, entry: dict[str, Any] | None) -> str:
    """`made`, if it says what `before` says but for the entry.

    Raises:
        UnsuitableError: it does not.
    """
    expected = _understood(before)
    servers = dict(expected.get(_SERVERS, {}))
    servers.pop(NAME, None)
    expected[_SERVERS] = servers | ({NAME: entry} if entry is not None else {})
    try:
        found = tomllib.loads(made)
    except ValueError:
        found = {}
    if {_SERVERS: {}} | found != expected:
        raise UnsuitableError(f"its {_SERVERS} are written in a way that cannot be edited safely")
    return made
