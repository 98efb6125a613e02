"""The protocol by which an agent allows cuts. Only `detect` and `load` are required."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from indexer.files import DISK, Disk, replace_file
from smart_fork.agents.cuts.lines import Edits, only_prompts_previewed, pieces, stamp_of
from smart_fork.agents.cuts.model import CutWarning, Stamp, Tool, Transcript, TranscriptTurn
from smart_fork.agents.description import Facet
from smart_fork.errors import ForkRefused, NotFound, Usage, advice


class Files:
    """The transcripts of an agent."""

    def has(self, path: Path) -> bool:
        """Return whether there is such a transcript."""
        return path.is_file()

    def stamp(self, path: Path, disk: Disk = DISK) -> Stamp | None:
        """Return what tells this version of a transcript from another; `None` without a transcript."""
        return stamp_of(now) if (now := disk.look(path)) else None

    def content(self, path: Path) -> Iterator[bytes]:
        """Return the bytes of a transcript, in pieces."""
        with path.open("rb") as file:
            yield from pieces(file.read)

    def begins_with(self, path: Path, before: Iterable[bytes]) -> bool:
        """Return whether a transcript still has everything that it had before."""
        with path.open("rb") as file:
            return all(piece == file.read(len(piece)) for piece in before)

    def replace(self, path: Path, pieces: Iterable[bytes], expected: Stamp | None, disk: Disk = DISK) -> None:
        """Write a transcript again, completely or not at all. `expected` is the version to replace.

        Raises:
            ForkRefused: The transcript has changed.
            OSError: The transcript is as it was.
        """

        def unchanged() -> None:
            if expected is not None and self.stamp(path, disk) != expected:
                raise ForkRefused(
                    f"The transcript changed during reading: {path}", "Its agent is working. End it and try again."
                )

        replace_file(path, pieces, like_before=True, ready=unchanged, disk=disk)

    def remove(self, path: Path) -> None:
        """Delete a transcript."""
        path.unlink(missing_ok=True)

    def finish(self, path: Path) -> None:
        """Finish `replace` after its process was killed."""


class Cutter(Files, Facet, ABC):
    """Reads and describes one agent's transcripts for cuts."""

    #: The suffixes of its files.
    suffixes: tuple[str, ...] = (".jsonl",)
    #: Whether what a team withdraws is cut out of copies; else these are written again.
    withdraws = True
    #: Files in its home with the prompts of all sessions.
    histories: tuple[str, ...] = ("history.jsonl",)

    @property
    def tool(self) -> Tool:
        """The agent's name."""
        return self.agent

    @abstractmethod
    def detect(self, path: Path) -> bool:
        """Return whether the file is one of this agent's transcripts."""

    @abstractmethod
    def load(self, path: Path, composer: str = "") -> Transcript:
        """Load the session in `path`. If the file has several, load the one that `composer` names.

        Raises:
            NotFound: The session, or a session that it was forked from, does not exist.
            OSError: The file cannot be read.
        """

    def newest(self) -> Path | None:
        """Return the newest transcript, for commands that name none; `None` if the logs do not tell.

        Raises:
            NotFound: There is no transcript.
        """
        return None

    def conversations(self, path: Path) -> list[tuple[str, int]]:
        """Return the id and the number of turns of each session in a file with several.

        Raises:
            Usage: Each file of this agent has one session.
        """
        raise Usage(
            f"One file has one conversation with {self.tool}: {path}",
            advice("List its turns without --conversations.", tool="List its turns."),
        )

    def public(self) -> Mapping[str, object]:
        """Return the names that `smart_fork.excise` exports for this agent, for existing scripts."""
        return {}

    def written(self, path: Path) -> Path:
        """Return the file that a cut of `path` writes."""
        return path

    def of_others(self, session: Transcript) -> list[bytes]:
        """Return the lines of other sessions in the written file."""
        return []

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        """Return edits that link children of removed records to the nearest record that is kept."""
        return {}

    def without_repetitions(self, session: Transcript, gone: Collection[str]) -> Edits:
        """Return edits that take quotations of removed records out of kept lines."""
        return {}

    def is_said(self, turn: TranscriptTurn) -> bool:
        """Return whether a line is part of the conversation; `False` for bookkeeping."""
        return turn.role != "system"

    def numbered(self, turns: Sequence[TranscriptTurn], numbers: Sequence[int | None]) -> Sequence[int | None]:
        """Return the numbers of the lines. Lines that repeat a message get its number."""
        return numbers

    def holds(self, path: Path, keys: Collection[str]) -> bool:
        """Return whether the transcript's own part has a record with one of these keys."""
        try:
            with only_prompts_previewed():
                return any(turn.key in keys for turn in self.load(path).own)
        except (NotFound, OSError):
            return False

    def may_have_others(self, path: Path) -> bool:
        """Return whether a transcript may contain records of another session, judged by its beginning."""
        return True

    def files_of(self, path: Path) -> list[Path]:
        """Return the files beside a transcript that belong to it."""
        return []

    def stores(self, session_id: str) -> list[Path]:
        """Return the agent's other files with text of a session, which a cut does not change."""
        return []

    def apart(self) -> list[Path]:
        """Return the agent's files outside its home that may contain text of sessions."""
        return []

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """Return the files beside a transcript that belong to the removed records."""
        return []

    def pieces(self, line: bytes) -> list[bytes]:
        """Return the records on a line as turns keep them."""
        return [line]

    def revised(self, path: Path, keys: Collection[str]) -> Mapping[Path, bytes]:
        """Return the files beside a transcript that stay, as they are without what has these keys."""
        return {}

    def forget(self, session: Transcript) -> None:
        """Delete what the agent derives from a session and keeps elsewhere. A rollback does not bring it back.

        Raises:
            ForkRefused: it cannot be deleted now.
        """

    def others(self, path: Path) -> list[Path]:
        """Return the session's other files that hold records which a program or a person has taken back."""
        return []

    def heirs(self, paths: Collection[Path], first: int = 0) -> list[Path]:
        """Return all logs that read records from these files, from record `first` on, and those that read from them."""
        return []

    def without_header(self, session: Transcript) -> list[CutWarning]:
        """Return a warning if a cut removes the first record that the agent needs."""
        return []
