"""Codex' hooks, in ``hooks.json``. It knows by the place in the file which ones a person has trusted."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from indexer.values import dict_in
from smart_fork.agents.agent import Calls, ClientCall
from smart_fork.agents.codex import HOME
from smart_fork.agents.codex.daemon import runs_hooks
from smart_fork.agents.hooks import Hooks


class CodexCalls(Calls):
    """See `Calls`."""

    def session_id(self, call: ClientCall) -> str | None:
        """See `Calls.session_id`."""
        thread = call.meta.get("threadId") or call.meta.get("sessionId")
        return thread if isinstance(thread, str) else None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        """See `Calls.workspaces`."""
        return list(dict_in(dict_in(meta.get("x-codex-turn-metadata")).get("workspaces")))


class CodexHooks(Hooks):
    """See `Hooks`."""

    file = "hooks.json"
    edits = "apply_patch|Bash"  # a patch may be given to a shell
    failures = ("PostToolUse", "Bash")  # it has one event for all, without their exit status
    events = ("SessionStart", "UserPromptSubmit", "PermissionRequest", "Stop", "Interrupt", "SessionEnd")

    def notes(self, text: str) -> Iterator[str]:
        """See `Hooks.notes`: a person decides what is trusted."""
        yield "Codex runs new hooks only when they are trusted: start `codex` once in a terminal, which asks"
        config = HOME.folder() / "config.toml"
        try:
            features = tomllib.loads(config.read_text(encoding="utf-8-sig")).get("features", {})
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            yield f"{config} cannot be read: {error}"
            return
        if isinstance(features, dict) and False in (features.get("hooks"), features.get("codex_hooks")):
            yield f"Codex runs no hooks at all: set `hooks = true` below [features] in {config}"

    def in_background(self, runner: Sequence[str] | None) -> bool:
        """See `Hooks.in_background`."""
        return runs_hooks(runner)
