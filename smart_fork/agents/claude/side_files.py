"""What belongs to a Claude Code session beside its log: long tool results, sub-agents, versions of changed files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from indexer.paths import private_dir
from smart_fork.agents.claude.home import claude_home
from smart_fork.agents.files import copy_file, copy_tree


def copy_beside(source: Path, target: Path, created: list[Path]) -> None:
    """Copy the folder beside a log. What is made is added to `created`, which the caller takes away after a failure.

    Raises:
        OSError: it cannot be copied.
        ForkRefused: there is another folder of that name.
    """
    beside = source.with_suffix("")
    if beside.is_dir() and not beside.is_symlink():
        private_dir(target.parent)
        if copy_tree(beside, target.with_suffix("")):
            created.append(target.with_suffix(""))


def copy_backups(names: Iterable[str], old: str, new: str, created: list[Path]) -> list[str]:
    """Copy the file versions that a copy's records refer to. Returns what is missing, in words.

    Raises:
        OSError: one cannot be copied.
    """
    folder = file_history(new)
    missing = 0
    for name in sorted(filter(_is_plain, names)):
        backup = file_history(old) / name
        if backup.is_symlink() or not backup.is_file():
            missing += 1
            continue
        if not folder.exists():
            created.append(folder)
            private_dir(folder)
        copy_file(backup, folder / name)
    return [f"{missing} earlier versions of files are gone: /rewind cannot restore them"] if missing else []


def file_history(session_id: str) -> Path:
    """Where Claude Code keeps the versions of files from before a session changed them."""
    return claude_home() / "file-history" / session_id


def _is_plain(name: str) -> bool:
    """Names come from the log: only one that stays in the folder is followed."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name
