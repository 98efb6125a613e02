"""Codex's settings: MCP servers in ``config.toml``, hooks in ``hooks.json``, and the login.

Servers, seen with 0.169.0: a server gets HOME, PATH, TERM and the locale of Codex's environment, and its own ``env``.
The entry of smart-fork is not ``required``: else Codex would not start if smart-fork were broken.

Hooks: Codex remembers which hooks a person trusts by each hook's place in the file.

Login, seen with 0.169.0: ``codex login status`` ends with 0 if a login is stored, even in a keychain, and says "Not
logged in" otherwise; it ignores other providers. A provider with an ``env_key`` that is not set ends every turn with
"Missing environment variable".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.json_values import dict_in
from indexer.lazy_compilation import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import CallerIdentity, ClientCall
from smart_fork.agents.codex import HOME
from smart_fork.agents.codex.daemon import runs_hooks
from smart_fork.agents.hooks import Hooks
from smart_fork.agents.login import Login, is_variable
from smart_fork.agents.mcp_registration import NAME, Registration, UnsuitableError, entry_in

if TYPE_CHECKING:
    from smart_fork.system.processes import Completed

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A piece of a TOML text, in whole lines: a table's header, a key with its value, or blanks and comments."""

    text: str
    table: tuple[str, ...] | None = None
    key: str | None = None


def _loaded(text: str) -> dict[str, Any]:
    import tomllib  # most commands read no settings

    return tomllib.loads(text)


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a TOML text in order. Their joined texts are `text` again."""
    lines = _LINE.findall(text)
    at = 0
    while at < len(lines):
        for end in range(at + 1, len(lines) + 1):
            piece = "".join(lines[at:end])
            try:
                read = _loaded(piece)
            except ValueError:
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
    """Return the line end that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


_SERVERS = "mcp_servers"
_TABLE = (_SERVERS, NAME)
_DEFAULTS: Mapping[str, Any] = {"startup_timeout_sec": 30, "tool_timeout_sec": 300}
#: The variables of its own environment that Codex passes to servers.
_PASSED_ON = ("HOME", "PATH", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "USER", "TMPDIR", "TZ")


class CodexRegistration(Registration):
    """The registration of smart-fork's server with Codex, which calls read-only tools without asking a person.

    Over HTTP, Codex takes the token from a variable only, which a person must set.
    """

    client = ("codex-mcp-client", "2025-06-18")
    file = "config.toml"

    def skills(self) -> Path:
        """Return the folder of skills, which several agents share."""
        return Path.home() / ".agents" / "skills"

    def value(self, text: str | None) -> dict[str, Any] | None:
        return entry_in(_understood(text or ""), _SERVERS, "a table")

    def raw(self, text: str | None) -> str | None:
        """Return the text of smart-fork's tables, without comments after the last key; `None` if there are none."""
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
        """Return True if there is a settings file: unlike JSON, TOML needs no part that lists servers."""
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
        # Without these the server would look elsewhere than whoever sets it up.
        folders = {name: env[name] for name in ("SMART_FORK_HOME", *AGENTS.home_variables()) if env.get(name)}
        if folders:
            entry["env"] = folders | dict((before or {}).get("env", {}))
        return entry

    def passed_on(self, env: Mapping[str, str]) -> dict[str, str]:
        return {name: env[name] for name in _PASSED_ON if name in env}


def _understood(text: str) -> dict[str, Any]:
    try:
        return _loaded(text)
    except (ValueError, RecursionError) as error:
        raise UnsuitableError(f"it is not plain TOML: {error}") from error


def _parts(text: str) -> tuple[str, list[Statement], str]:
    """Return (text before the tables of smart-fork's entry, the tables, text after them).

    Raises:
        UnsuitableError: The entry is not written as tables next to each other.
    """
    all_of_it = list(statements(text))
    ours, inside = list[bool](), False
    for one in all_of_it:
        inside = inside if one.table is None else one.table[:2] == _TABLE
        ours.append(inside)
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
    """Yield an entry's tables with the values of `entry` instead of those `there`. Changed keys follow the header."""
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
    """Return `made` (the new settings), if only smart-fork's entry differs from the settings `before`.

    Raises:
        UnsuitableError: Other settings would change.
    """
    expected = _understood(before)
    servers = dict(expected.get(_SERVERS, {}))
    servers.pop(NAME, None)
    expected[_SERVERS] = servers | ({NAME: entry} if entry is not None else {})
    try:
        found = _loaded(made)
    except ValueError:
        found = {}
    if {_SERVERS: {}} | found != expected:
        raise UnsuitableError(f"its {_SERVERS} are written in a way that cannot be edited safely")
    return made


_TRUSTED = ("hooks", "state")
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def _trusted(text: str) -> dict[str, Any]:
    """Return ``hooks.state`` in Codex's settings: the hooks that a person trusts, by their places in the hooks file."""
    return dict_in(dict_in(_loaded(text).get("hooks")).get("state"))


class CodexCaller(CallerIdentity):
    """Finds the session of Codex that made a tool call."""

    def session_id(self, call: ClientCall) -> str | None:
        thread = call.meta.get("threadId") or call.meta.get("sessionId")
        return thread if isinstance(thread, str) else None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        return list(dict_in(dict_in(meta.get("x-codex-turn-metadata")).get("workspaces")))


class CodexHooks(Hooks):
    """Knows Codex's hooks: their events, and Codex's notes about which hooks a person trusts."""

    file = "hooks.json"
    edits = "apply_patch|Bash"  # a patch may be given to a shell
    failures = ("PostToolUse", "Bash")  # it has one event for all, without their exit status
    events = ("SessionStart", "UserPromptSubmit", "PermissionRequest", "Stop", "Interrupt", "SessionEnd")

    def notes(self, text: str) -> Iterator[str]:
        """Yield the reasons why Codex does not run hooks yet. A person decides which hooks are trusted."""
        yield "Codex runs new hooks once you trust them: start `codex` in a terminal, it asks"
        config = HOME.folder() / "config.toml"
        try:
            features = _loaded(config.read_text(encoding="utf-8-sig")).get("features", {})
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            yield f"{config} cannot be read: {error}"
            return
        if isinstance(features, dict) and False in (features.get("hooks"), features.get("codex_hooks")):
            yield f"Codex runs no hooks at all: set `hooks = true` below [features] in {config}"

    def distrusting(self, left: str) -> tuple[Path, str, str] | None:
        """Return (path of config.toml, its text, the text without trust in smart-fork's hooks); `None` if it has none.

        Each trusted hook has a table, named after its place in the hooks file. `left` is the text of the hooks file
        without smart-fork's hooks. Comments stay.
        """
        path, of = HOME.folder() / "config.toml", f"{self.path()}:"
        if not path.exists():
            return None
        there = _trusted(text := path.read_bytes().decode())
        groups = [(event, *one) for event, some in json.loads(left).get("hooks", {}).items() for one in enumerate(some)]
        numbers = [(event, group, number) for event, group, one in groups for number in range(len(one["hooks"]))]
        names = {f"{of}{_CAPITAL.sub('_', event).lower()}:{group}:{number}" for event, group, number in numbers}
        gone = {(*_TRUSTED, one) for one in there if one.startswith(of) and one not in names}
        if not gone:
            return None
        kept, table = list[str](), tuple[str, ...]()
        for one in statements(text):
            table = table if one.table is None else one.table
            whole = len(gone) == len(there) and table == _TRUSTED
            if not (table in gone or whole) or one.text.lstrip().startswith("#"):
                kept.append(one.text)
        made = "".join(kept[:-1] if kept and not kept[-1].strip() else kept)  # the line that was left blank for it
        if _trusted(made) != {one: value for one, value in there.items() if (*_TRUSTED, one) not in gone}:
            raise ValueError("its trust in hooks is not noted in tables")
        return path, text, made

    def in_background(self, runner: Sequence[str] | None) -> bool:
        return runs_hooks(runner)


_LOGIN_KEYS = ("CODEX_API_KEY", "OPENAI_API_KEY")
_BESIDE = ("OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT")
#: The default provider.
_OWN = "openai"


class CodexLogin(Login):
    """Knows how Codex logs in, and which variables its model provider needs."""

    command = "codex login"
    status, listed = ("login", "status"), r"(?m)^\s+login\b"

    def variables(self) -> tuple[str, ...]:
        providers = _tables(_settings().get("model_providers"))
        named = (name for one in providers.values() for name in _variables_in(one))
        return tuple(dict.fromkeys((*_LOGIN_KEYS, *_BESIDE, *named)))

    def required(self) -> tuple[str, ...]:
        return _required(*_provider())

    def is_plain(self, env: Mapping[str, str]) -> bool:
        name, provider = _provider()
        if required := _required(name, provider):
            return all(env.get(one) for one in required)
        if name != _OWN:  # one that needs no key, or that Codex brings with it
            return provider.get("requires_openai_auth") is not True
        return bool(env.get("CODEX_API_KEY")) or self.has_stored("auth.json")

    def answered(self, said: Completed) -> bool | None:
        if said.ok:
            return True
        return False if b"not logged in" in (said.stdout + said.stderr).lower() else None


def _settings() -> dict[str, Any]:
    try:
        return _loaded((HOME.folder() / "config.toml").read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def _provider() -> tuple[str, Mapping[str, Any]]:
    """Return (name, settings) of the model provider in use, from the chosen profile, else from Codex's settings."""
    said = _settings()
    profile = _tables(said.get("profiles")).get(str(said.get("profile")), {})
    name = profile.get("model_provider", said.get("model_provider", _OWN))
    return str(name), _tables(said.get("model_providers")).get(str(name), {})


def _required(name: str, provider: Mapping[str, Any]) -> tuple[str, ...]:
    key = str(provider.get("env_key") or "")
    return (key,) if name != _OWN and is_variable(key) else ()


def _tables(value: object) -> Mapping[str, Mapping[str, Any]]:
    return {name: one for name, one in value.items() if isinstance(one, dict)} if isinstance(value, dict) else {}


def _variables_in(provider: Mapping[str, Any]) -> list[str]:
    named = (provider.get("env_key"), *dict_in(provider.get("env_http_headers")).values())
    return [one for one in named if is_variable(one)]
