"""The steps of setup, and the ledger: a line is written before each change, so that all can be undone."""

from __future__ import annotations

import json
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
from smart_fork.agents.registration import UnsuitableError
from smart_fork.cli.setup.setup_answer import StepTold
from smart_fork.errors import SmartForkError


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a text, undone to the byte where the text has not been changed since.

    `was` has become `now` at the character `at`. The digests are of the whole texts, before and after.

    A text that was not there has no digest.
    """

    at: int
    was: str
    now: str
    before: str
    after: str

    @classmethod
    def of(cls, before: str | None, after: str) -> Edit:
        """Return the edit that turns `before` into `after`."""
        old = before or ""
        at = _shared(old, after)
        shared = _shared(old[at:][::-1], after[at:][::-1])
        was, now = old[at : len(old) - shared], after[at : len(after) - shared]
        return cls(at, was, now, digest(before), digest(after))

    def is_in(self, text: str | None) -> bool:
        """Return True if `text` still has the edit."""
        return digest(text) == self.after

    def never_came(self, text: str | None) -> bool:
        """Return True if `text` is still as it was before."""
        return digest(text) == self.before

    def undone(self, text: str) -> str | None:
        """Return the text without the edit; `None` if there was no file before."""
        if not self.before:
            return None
        return text[: self.at] + self.was + text[self.at + len(self.now) :]


def _shared(one: str, other: str) -> int:
    """Count the characters that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def digest(text: str | None) -> str:
    """The digest of a text, empty where there is none."""
    return "" if text is None else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


What = Literal["server", "skill", "hooks", "recall", "reading", "keep", "service"]


class LedgerLine(BaseModel):
    """One thing that was done, or was just going to be.

    `edit` is what was changed in the file at `path`, for a server and a skill. `value` and `former` are the entry of a
    server as we have written it, and the text of the one that it replaced; `had_servers`: whether there was a place for
    it. `made`: whether the file was made for the first of them. `folders` were made for it, the outermost first.
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
        """The line's unique key."""
        return self.what, self.agent, self.path

    def undone(self, text: str, restore: Callable[[str], str]) -> str | None:
        """`text` without what was put in: to the byte where nobody has changed it since, else as `restore` gives it."""
        if self.edit is None or not (self.edit.is_in(text) or self.edit.never_came(text)):
            return restore(text)
        return self.edit.undone(text) if self.edit.is_in(text) else text


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    lines: list[LedgerLine] = Field(default_factory=list)


class Ledger:
    """The lines, in the order in which things were done; on the disk after each change."""

    def __init__(self) -> None:
        self.path = state_home() / "setup" / "ledger.json"
        self._kept = self._read()

    def __iter__(self) -> Iterator[LedgerLine]:
        return iter(tuple(self._kept.lines))

    def of(self, what: What, agent: str, path: Path) -> LedgerLine | None:
        """The line about this, if there is one."""
        return next((line for line in self if line.about == (what, agent, path)), None)

    def write(self, line: LedgerLine) -> None:
        """Keep `line`, in the place of the one about the same: what was done first is undone last.

        Raises:
            SmartForkError: it cannot be written.
        """
        lines = list(self)
        at = next((at for at, one in enumerate(lines) if one.about == line.about), len(lines))
        self._save([*lines[:at], line, *lines[at + 1 :]])

    def begin(self, line: LedgerLine) -> None:
        """Keep `line` before what it says is done, with the folders that have to be made for it.

        Raises:
            SmartForkError: it cannot be written.
        """
        earlier = self.of(*line.about)
        folders = [*(earlier.folders if earlier else ()), *_missing_folders(line.path)]
        self.write(line.model_copy(update={"folders": folders}))

    def strike(self, line: LedgerLine) -> None:
        """Forget what is undone. Without any line there is no ledger.

        Raises:
            SmartForkError: it cannot be written.
        """
        self._save([one for one in self if one.about != line.about])

    def _save(self, lines: list[LedgerLine]) -> None:
        kept = _Kept(lines=lines)
        with switching(self.path, "written"):
            if lines:
                replace_file(private_dir(self.path.parent) / self.path.name, [kept.model_dump_json(indent=2).encode()])
            else:
                remove(self.path)
        self._kept = kept

    def _read(self) -> _Kept:
        try:
            return _Kept.model_validate(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return _Kept()
        except (OSError, ValueError, ValidationError) as error:
            step = "It lists the installed parts. Restore it, or remove them by hand and delete it."
            raise SmartForkError(f"{self.path} cannot be read", next_step(error) or step) from error


def _missing_folders(path: Path) -> list[Path]:
    """The folders that have to be made for `path`, the outermost first."""
    missing: list[Path] = []
    for folder in path.parents:
        if folder.exists():
            break
        missing.insert(0, folder)
    return missing


@contextmanager
def alone() -> Iterator[None]:
    """Held by whoever sets up or undoes. Where nothing is set up then, no empty folder of ours stays.

    Raises:
        SmartForkError: somebody else does.
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
State = Literal["new", "changed", "there", "left"]


@dataclass(frozen=True, slots=True)
class Step:
    """`name` is what people read, `why` what keeps a step from being done. `do` gives what a person should know."""

    what: str
    name: str
    where: str
    state: State
    agent: str = ""
    why: str = ""
    act: Callable[[Ledger], list[str]] = lambda _: []
    failure: SmartForkError | None = None

    def do(self, ledger: Ledger) -> list[str]:
        """Do it.

        Raises:
            SmartForkError: it cannot be done.
        """
        if self.failure:
            raise self.failure
        return self.act(ledger)

    @property
    def is_open(self) -> bool:
        """Return True if there is something to do."""
        return self.state in ("new", "changed")

    def told(self) -> StepTold:
        """The step as it is answered."""
        return StepTold(
            step=self.what, agent=self.agent, name=self.name, where=self.where, state=self.state, why=self.why
        )


@contextmanager
def understood(path: Path, step: str) -> Iterator[None]:
    """Leave settings that are not understood as they are, and name the next `step`.

    Raises:
        SmartForkError: they are not.
    """
    try:
        yield
    except UnsuitableError as error:
        raise SmartForkError(f"{path} was not changed: {error}", step) from error


@contextmanager
def switching(path: Path, how: str) -> Iterator[None]:
    """Name the file of a switch that cannot be "written" or "removed".

    Raises:
        SmartForkError: it cannot.
    """
    try:
        yield
    except OSError as error:
        raise SmartForkError(f"{path} cannot be {how}: {error.strerror}", "Check the owner of the folder.") from error


def take_away(path: Path, folders: list[Path]) -> None:
    """Remove what a killed writer has left beside `path`, and of `folders`, made for it, those that are empty."""
    sweep_beside(path.resolve())
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()
