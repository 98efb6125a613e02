"""The steps of setup, its ledger, and its way to change files of other programs (`ForeignFile`).

The ledger is a file that lists each change before setup makes it, so that all changes can be undone.
"""

from __future__ import annotations

import json
import stat
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indexer.errors import next_step
from indexer.lazy import dataclass
from indexer.locks import held_file
from indexer.safe_files import private_dir, remove, replace_file, state_home, sweep_beside
from indexer.transcripts.model import AgentName
from smart_fork.agents.mcp_registration import UnsuitableError
from smart_fork.cli.setup.setup_answer import StepTold
from smart_fork.errors import SmartForkError


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file's text, which can be undone to the byte if the text has not changed since.

    At the position `at`, in characters, the text `now` replaced `was`. `before` and `after` are digests of the whole
    text; empty if there was no file.
    """

    at: int
    was: str
    now: str
    before: str
    after: str

    @classmethod
    def of(cls, before: str | None, after: str) -> Edit:
        """Return the edit that turns `before` (`None` without a file) into `after`."""
        old = before or ""
        at = _shared(old, after)
        shared = _shared(old[at:][::-1], after[at:][::-1])
        was, now = old[at : len(old) - shared], after[at : len(after) - shared]
        return cls(at, was, now, digest(before), digest(after))

    def is_in(self, text: str | None) -> bool:
        """Return True if `text` is exactly the result of this edit."""
        return digest(text) == self.after

    def never_came(self, text: str | None) -> bool:
        """Return True if `text` is exactly the text before this edit."""
        return digest(text) == self.before

    def undone(self, text: str) -> str | None:
        """Return the text before this edit, made from its result `text`; `None` if there was no file."""
        if not self.before:
            return None
        return text[: self.at] + self.was + text[self.at + len(self.now) :]


def _shared(one: str, other: str) -> int:
    """Return the number of characters at the beginning that are equal in both texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def digest(text: str | None) -> str:
    """Return the digest (a hash) of `text`; empty for `None`, which means no file."""
    return "" if text is None else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


What = Literal["server", "skill", "hooks", "recall", "reading", "keep", "service"]


class LedgerLine(BaseModel):
    """A line of the ledger: one change at `path` that setup made, or was about to make.

    `what` names the part of the setup. For an MCP server, `value` is its new entry in the settings, and `former` the
    entry's text before. `had_servers` says whether the settings had a place for servers. Setup created the file if
    `made`, and `folders`, the outermost first.
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

        Unchanged text is restored to the byte. Otherwise `restore` takes out setup's change.
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
    """Hold the lock of setup inside the context. Then delete those of smart-fork's folders that are empty.

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


#: ``new`` is put where nothing is, ``changed`` replaces what is there, ``there`` is as it should be, ``left`` cannot or
#: must not be done.
StepState = Literal["new", "changed", "there", "left"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the setup's plan, such as registering the MCP server with one agent.

    `name` is for people. If it is not done, `why` says why. `act` does it and returns notes. `failure` is the error if
    it could not be planned.
    """

    what: str
    name: str
    where: str
    state: StepState
    agent: str = ""
    why: str = ""
    act: Callable[[Ledger], list[str]] = lambda _: []
    failure: SmartForkError | None = None

    def do(self, ledger: Ledger) -> list[str]:
        """Do the step, and return notes for the person.

        Raises:
            SmartForkError: the step cannot be done.
        """
        if self.failure:
            raise self.failure
        return self.act(ledger)

    @property
    def is_open(self) -> bool:
        """Return True if the step adds or changes something."""
        return self.state in ("new", "changed")

    def told(self) -> StepTold:
        """Return the step as a value for the JSON answer."""
        return StepTold(
            step=self.what, agent=self.agent, name=self.name, where=self.where, state=self.state, why=self.why
        )


@contextmanager
def write_errors(path: Path, how: str) -> Iterator[None]:
    """Turn an `OSError` inside the context into a `SmartForkError`: `path` cannot be `how` ("written", "removed")."""
    try:
        yield
    except OSError as error:
        raise SmartForkError(f"{path} cannot be {how}: {error.strerror}", "Check the owner of the folder.") from error


def remove_leftovers(path: Path, folders: list[Path]) -> None:
    """Remove temporary files of a killed process next to `path`, and those of `folders` that are empty."""
    sweep_beside(path.resolve())
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A text file of another program, such as an agent's settings. Errors have the hint `next_step`.

    It is written only if its text has not changed since it was read, and never if it is read-only. Links, mode, owner
    and byte-order mark stay. An empty JSON file counts as an empty object, because agents read it so.
    """

    path: Path
    next_step: str = ""

    def read(self) -> str | None:
        """Return the text of the file; `None` if there is no file.

        Raises:
            SmartForkError: the file cannot be read, or is not UTF-8.
        """
        try:
            return self._text(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SmartForkError(f"{self.path} cannot be read: {error.strerror}", self.next_step) from error
        except ValueError as error:
            raise SmartForkError(f"{self.path} is not UTF-8, and was not changed", self.next_step) from error

    def write(self, before: str | None, text: str | None) -> None:
        """Write `text`, or delete the file if it is `None`, but only if the file's text is still `before`.

        Raises:
            SmartForkError: another program has changed the file, or it cannot be written.
        """
        target = self.path.resolve()
        try:
            now = target.read_bytes() if target.exists() else None
            if (None if now is None else self._text(now)) != before:
                raise SmartForkError(f"{self.path} has just been changed by another program", "Try again.")
            self.check_writable()
            if text is None:
                target.unlink()
                return
            private_dir(target.parent)
            mark = BOM_UTF8 if now and now.startswith(BOM_UTF8) else b""
            replace_file(target, [mark, text.encode()], like_before=True)
        except OSError as error:
            step = "Check the owner of the file."
            raise SmartForkError(f"{self.path} cannot be written: {error.strerror}", step) from error

    def check_writable(self) -> None:
        """Refuse a file that its owner has made read-only, even if this user could write it.

        Raises:
            SmartForkError: the file is read-only.
        """
        target, step = self.path.resolve(), f"Make it writable (chmod u+w {self.path})."
        if target.is_file() and not target.stat().st_mode & stat.S_IWUSR:
            raise SmartForkError(f"{self.path} is read-only, and was not changed", step)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Turn an `UnsuitableError` (settings with an unknown form) inside the context into a `SmartForkError`."""
        try:
            yield
        except UnsuitableError as error:
            raise SmartForkError(f"{self.path} was not changed: {error}", self.next_step) from error

    def _text(self, content: bytes) -> str:
        text = content.removeprefix(BOM_UTF8).decode()
        return text if text.strip() or self.path.suffix != ".json" else "{}"
