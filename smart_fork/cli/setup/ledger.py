"""The ledger of setup: a file that lists each change before setup makes it, so that all changes can be undone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indexer.errors import next_step
from indexer.locks import held_file
from indexer.safe_files import private_dir, remove, replace_file, state_home
from indexer.transcripts.model import AgentName
from smart_fork.cli.setup.foreign_file import Edit, write_errors
from smart_fork.errors import SmartForkError

What = Literal["server", "skill", "hooks", "recall", "reading", "keep", "service"]


class LedgerLine(BaseModel):
    """A line of the ledger: one change at `path` that setup made, or was about to make.

    `what` names the part of the setup. `made` says that setup created the file, and `folders` are those it created, the
    outermost first. For an MCP server, `value` is its new entry, `former` the text of its earlier entry, and
    `had_servers` says whether the settings had a place for servers.
    """

    model_config = ConfigDict(extra="forbid")

    what: What
    agent: AgentName | Literal[""] = ""
    path: Path
    edit: Edit | None = None
    value: dict[str, Any] | None = None
    former: str | None = None
    had_servers: bool = True
    made: bool = False
    folders: list[Path] = Field(default_factory=list)

    @property
    def about(self) -> tuple[What, str, Path]:
        """The key of this line in the ledger."""
        return self.what, self.agent, self.path

    def undone(self, text: str, restore: Callable[[str], str]) -> str | None:
        """Return `text` without the change of this line; `None` if there was no file before.

        If the text has not changed since, it is restored to the byte. Otherwise `restore` takes out setup's change.
        """
        if self.edit is None or not (self.edit.is_in(text) or self.edit.never_came(text)):
            return restore(text)
        return self.edit.undone(text) if self.edit.is_in(text) else text


class _LedgerFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    lines: list[LedgerLine] = Field(default_factory=list)


class Ledger:
    """The ledger of setup: a file with a line for each change, in order, so that each can be undone."""

    def __init__(self) -> None:
        self.path = state_home() / "setup" / "ledger.json"
        self._kept = self._read()

    def __iter__(self) -> Iterator[LedgerLine]:
        return iter(tuple(self._kept.lines))

    def of(self, what: What, agent: str, path: Path) -> LedgerLine | None:
        """Return the line for this part of the setup, this agent and this path, or `None`."""
        return next((line for line in self if line.about == (what, agent, path)), None)

    def write(self, line: LedgerLine) -> None:
        """Add `line`, or replace the line with its key, in its place, because changes are undone in reverse order.

        Raises:
            SmartForkError: the ledger cannot be written.
        """
        lines = list(self)
        at = next((at for at, one in enumerate(lines) if one.about == line.about), len(lines))
        self._save([*lines[:at], line, *lines[at + 1 :]])

    def begin(self, line: LedgerLine) -> None:
        """Write `line` before its change is made, and note in it the folders that the change will create."""
        earlier = self.of(*line.about)
        folders = [*(earlier.folders if earlier else ()), *_missing_folders(line.path)]
        self.write(line.model_copy(update={"folders": folders}))

    def strike(self, line: LedgerLine) -> None:
        """Remove `line` after its change was undone. A ledger without lines is deleted."""
        self._save([one for one in self if one.about != line.about])

    def _save(self, lines: list[LedgerLine]) -> None:
        kept = _LedgerFile(lines=lines)
        with write_errors(self.path, "written"):
            if lines:
                replace_file(private_dir(self.path.parent) / self.path.name, [kept.model_dump_json(indent=2).encode()])
            else:
                remove(self.path)
        self._kept = kept

    def _read(self) -> _LedgerFile:
        try:
            return _LedgerFile.model_validate(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return _LedgerFile()
        except (OSError, ValueError, ValidationError) as error:
            step = "It lists the installed parts. Restore it, or remove them by hand and delete it."
            raise SmartForkError(f"{self.path} cannot be read", next_step(error) or step) from error


def _missing_folders(path: Path) -> list[Path]:
    """Return the folders above `path` that do not exist yet, the outermost first."""
    missing: list[Path] = []
    for folder in path.parents:
        if folder.exists():
            break
        missing.insert(0, folder)
    return missing


@contextmanager
def setup_lock() -> Iterator[None]:
    """Hold the lock of setup inside the context. Afterwards delete smart-fork's state folders if they are empty.

    Raises:
        SmartForkError: another process holds the lock.
    """
    folder = state_home() / "setup"
    with held_file(private_dir(folder) / "lock", 0) as ours:
        if not ours:
            raise SmartForkError("smart-fork is being set up in another window", "Finish it there first.")
        try:
            yield
        finally:
            if not (folder / "ledger.json").exists():
                remove(folder / "lock")
    for empty in (folder, state_home() / "hooks", state_home()):
        with suppress(OSError):
            empty.rmdir()
