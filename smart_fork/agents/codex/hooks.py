"""Codex' hooks, in ``hooks.json``. It knows by the place in the file which ones a person has trusted."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from indexer.values import dict_in
from smart_fork.agents.agent import Calls, ClientCall
from smart_fork.agents.codex import HOME
from smart_fork.agents.codex.daemon import runs_hooks
from smart_fork.agents.hooks import Hooks

_TRUSTED = ("hooks", "state")
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def _trusted(text: str) -> dict[str, Any]:
    """Return the places of hooks that a person trusts, with what else is noted of them."""
    return dict_in(dict_in(tomllib.loads(text).get("hooks")).get("state"))


class CodexCalls(Calls):
    """See `Calls`."""

    def session_id(self, call: ClientCall) -> str | None:
        thread = call.meta.get("threadId") or call.meta.get("sessionId")
        return thread if isinstance(thread, str) else None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        return list(dict_in(dict_in(meta.get("x-codex-turn-metadata")).get("workspaces")))


class CodexHooks(Hooks):
    """See `Hooks`."""

    file = "hooks.json"
    edits = "apply_patch|Bash"  # a patch may be given to a shell
    failures = ("PostToolUse", "Bash")  # it has one event for all, without their exit status
    events = ("SessionStart", "UserPromptSubmit", "PermissionRequest", "Stop", "Interrupt", "SessionEnd")

    def notes(self, text: str) -> Iterator[str]:
        """See `Hooks.notes`: a person decides what is trusted."""
        yield "Codex runs new hooks once you trust them: start `codex` in a terminal, it asks"
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

    def distrusting(self, left: str) -> tuple[Path, str, str] | None:
        """See `Hooks.distrusting`. Each place of a hook has a table; ours stood behind others. Comments stay."""
        from smart_fork.agents.codex.registration import statements

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
