"""Claude Code's settings: hooks in ``settings.json``, the login, and MCP servers in ``.claude.json``.

Seen with 2.1.197: Claude Code reads strict JSON only, and replaces a file with comments as damaged. It takes
``.config.json`` in its folder before ``.claude.json``. It locks the file by a folder beside it, and writes the file
again at each start. So smart-fork inserts its entry as text. If Claude Code has not run since, removing the entry
restores every byte.

Login, seen with 2.1.197: ``claude auth status`` prints as JSON whether Claude Code is logged in, also by an
``apiKeyHelper``, the ``env`` of its settings or the keychain. Without a login, Claude Code's window opens and says so.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.json_values import dict_in, json_in
from indexer.transcripts.lines import last_lines
from smart_fork.agents.agent import CallerIdentity, ClientCall, newest_logs
from smart_fork.agents.claude import SESSION
from smart_fork.agents.hooks import Hooks
from smart_fork.agents.login import Login, table
from smart_fork.agents.mcp_registration import NAME, JsonRegistration
from smart_fork.errors import SmartForkError

if TYPE_CHECKING:
    from smart_fork.system.processes import Completed

#: Seconds after which Claude Code considers a lock abandoned.
_STALE = 10.0
_PATIENCE, _LOOK = 12.0, 0.05


class ClaudeRegistration(JsonRegistration):
    """The registration of smart-fork's server with Claude Code."""

    client = ("claude-code", "2025-11-25")
    said: Mapping[str, str] = {"CLAUDECODE": "1"}

    def path(self) -> Path:
        legacy = self.home() / ".config.json"
        if legacy.exists():
            return legacy
        folder = self.home() if os.environ.get("CLAUDE_CONFIG_DIR") else Path.home()
        return folder / ".claude.json"

    def permission_file(self) -> Path:
        return self.home() / "settings.json"

    def permission_rules(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Return the rules that allow these tools, also under the names that the plugin gives them."""
        return tuple(f"mcp__{one}__{tool}" for one in (NAME, f"plugin_{NAME}_{NAME}") for tool in tools)

    def wanted(self, words: Sequence[str], env: Mapping[str, str], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the server's entry, with ``alwaysLoad``, so that the first request waits for the server."""
        return super().wanted(words, env, {"alwaysLoad": True, **(before or {})})

    def holders(self) -> tuple[Path, ...]:
        """Return the files that may have smart-fork's entry, the current project's included."""
        return (Path.home() / ".claude.json", self.home() / ".claude.json", Path(".mcp.json"))

    def over_http(self, url: str, token: str) -> str:
        return f'claude mcp add --transport http {NAME} {url} --header "Authorization: Bearer $(cat {token})"'

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Within this context, hold the folder that Claude Code uses as the lock of its settings."""
        path = self.path()
        lock = path.with_name(f"{path.name}.lock")
        if not path.parent.is_dir():
            yield
            return
        _acquire(lock, path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.rmdir()


def _acquire(lock: Path, path: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            lock.mkdir()
        except FileExistsError:
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > _STALE:
                    lock.rmdir()
                    continue
            if time.monotonic() > until:
                raise SmartForkError(f"Claude Code is writing {path}", f"Try again, or remove {lock}.") from None
            time.sleep(_LOOK)
        except OSError as error:
            raise SmartForkError(
                f"{path} cannot be written: {error.strerror}", "Check the owner of the folder."
            ) from error
        else:
            return


class ClaudeHooks(Hooks):
    """Knows the hooks of Claude Code: their events, and the tools that edit files or run commands."""

    edits = "Edit|MultiEdit"
    failures = ("PostToolUseFailure", "Bash")
    #: No others: Claude Code stops at its start to ask about an unknown event.
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")


#: A shorter id of a tool call is too common to identify a log.
MIN_CALL_ID = 8
#: The bytes at a log's end that are searched for the current call.
TAIL_BYTES = 512 * 1024
#: How often, and how far apart in seconds, the log is searched if nothing else names the session: the call was in the
#: log after 53-88 ms.
LOOKS, LOOK_SECONDS = 6, 0.06


class ClaudeCaller(CallerIdentity):
    """Finds the session of Claude Code that made a tool call."""

    def session_id(self, call: ClientCall) -> str | None:
        """Return the id of the session with the call near its log's end. Wait a moment: the log gets the call late."""
        tool_use = call.meta.get("claudecode/toolUseId")
        if not isinstance(tool_use, str) or len(tool_use) < MIN_CALL_ID or call.project is None:
            return None
        from smart_fork.agents.claude.log_files import folder_of

        needle = tool_use.encode("utf-8", "replace")
        for number in range(1 if call.environment.get(SESSION) else LOOKS):
            if number:
                time.sleep(LOOK_SECONDS)
            logs = newest_logs(folder_of(Path(call.project)), "*.jsonl")
            if found := next((path for path in logs if _ends_with(path, needle)), None):
                return found.stem
        return None


def _ends_with(path: Path, needle: bytes) -> bool:
    with contextlib.suppress(OSError):
        return any(needle in line for line in last_lines(path, TAIL_BYTES))
    return False


#: The variables of which each is a login.
_KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
)  # fmt: skip
#: The variables that select a server, a model or an account, and those of the clouds' own logins.
_BESIDE = (
    "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_VERTEX_PROJECT_ID",
    "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_REGION", "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
)  # fmt: skip


class ClaudeLogin(Login):
    """Knows how Claude Code logs in."""

    command = "claude auth login"
    stored = ".credentials.json"
    keys, beside = _KEYS, _BESIDE
    status, listed = ("auth", "status"), r"(?m)^\s+auth\b"

    def settled(self) -> frozenset[str]:
        return frozenset(table(self.settings(), "env"))

    def answered(self, said: Completed) -> bool | None:
        logged_in = dict_in(json_in(said.stdout)).get("loggedIn")
        return logged_in if isinstance(logged_in, bool) else None
