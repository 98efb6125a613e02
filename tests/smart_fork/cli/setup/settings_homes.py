"""Homes full of other people's settings, and their content byte by byte."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from smart_fork.agents import AGENTS
from smart_fork.agents.mcp_registration import JsonRegistration

CODEX_TOML = (
    '# my settings\nmodel = "gpt-5"   # the big one\nnotify = [\n  "say", # loud\n]\n\n[mcp_servers.other]\ncommand = "other"\n'
    'env = { A = "b", B = "[mcp_servers.smart-fork]" }\n\n[plugins."x@y"]\nenabled = true\n\n# the end, without a line end'
)
CLAUDE_JSON = (
    '{"numStartups":   7,\n  "odd": [1,\n2 ], "mcpServers" : {"other": {"command": "other", "args": []}},\n'
    '\t"projects": {"/p": {"mcpServers": {}}}, "naïve": "\\u00e4 ä"}'
)
SETTINGS = {
    "model": "opus",
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}], "PreToolUse": []},
    "enabledPlugins": {"x@y": True},
    "permissions": {"allow": ["Bash(ls:*)"]},
}


def _claude(home: Path) -> Path:
    return home / ".claude"


def _others() -> list[JsonRegistration]:
    """Return the agents with settings that consist of a list of servers only."""
    ways = [way for way in AGENTS.registrations() if way.agent not in ("claude", "codex")]
    return [way for way in ways if isinstance(way, JsonRegistration)]


def _settings(home: Path) -> list[Path]:
    names = (".claude.json", ".claude/settings.json", ".codex/config.toml")
    return [*(home / name for name in names), *(way.path() for way in _others())]


def empty(home: Path) -> None:
    """Write a home with agents that were never started."""


def started(home: Path) -> None:
    """Write a home with agents that were started once, and nothing else."""
    _claude(home).mkdir()
    (home / ".codex").mkdir()
    (home / ".claude.json").write_text('{\n  "numStartups": 1\n}')


def full(home: Path) -> None:
    """Write a home with servers, hooks, plugins and skills of others, oddly formatted."""
    (_claude(home) / "skills" / "mine").mkdir(parents=True)
    (_claude(home) / "skills" / "mine" / "SKILL.md").write_text("---\nname: mine\n---\n")
    (home / ".codex").mkdir()
    (home / ".claude.json").write_text(CLAUDE_JSON)
    (home / ".claude.json").chmod(0o640)
    (_claude(home) / "settings.json").write_text(json.dumps(SETTINGS, indent=4))
    (home / ".codex" / "config.toml").write_text(CODEX_TOML)
    (home / ".codex" / "hooks.json").write_text('{"hooks":{}}')
    for way in _others():
        way.path().parent.mkdir(parents=True, exist_ok=True)
        way.path().write_text(CLAUDE_JSON.replace("mcpServers", way.servers, 1))


def windows(home: Path) -> None:
    """Write the `full` home with the line ends of Windows."""
    full(home)
    for path in _settings(home):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")


def linked(home: Path) -> None:
    """Write a home with settings that are links into a folder of dotfiles."""
    full(home)
    dotfiles = home / "dotfiles"
    dotfiles.mkdir()
    for number, path in enumerate((*_settings(home), home / ".codex/hooks.json", home / ".claude/skills")):
        target = dotfiles / f"{number}-{path.name}"
        path.rename(target)
        path.symlink_to(target)


def by_hand(home: Path) -> None:
    """Write a home where a person has registered smart-fork by hand."""
    full(home)
    (home / ".claude.json").write_text(
        '{"mcpServers": {"smart-fork": {"type":"stdio", "command":"smart-fork","args":["mcp"], "env":{"A":"b"}}}}\n'
    )
    config = '\n\n[mcp_servers.smart-fork] # mine\ncommand = "smart-fork"\nargs = ["mcp"]\n\n[tui]\n'
    (home / ".codex" / "config.toml").write_text(CODEX_TOML + config)


HOMES = (empty, started, full, windows, linked, by_hand)


def everything(home: Path) -> dict[str, tuple[int, bytes | str]]:
    """Return mode and content of each file, folder and link of a home, except for smart-fork's own files."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for folder, folders, files in os.walk(home):
        folders[:] = [name for name in folders if name not in (".smart-fork", "bin", "shop")]
        for name in (*folders, *files):
            path = Path(folder, name)
            mode = stat.S_IMODE(path.lstat().st_mode)
            content = str(path.readlink()) if path.is_symlink() else "" if path.is_dir() else path.read_bytes()
            found[str(path.relative_to(home))] = (mode, content)
    return found
