"""What an agent says of its transcripts, so that they can be cut. It must say how they are read; all else may be so."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from smart_fork.cuts.edits import Edits
from smart_fork.cuts.model import CutWarning, Tool, Transcript, TranscriptTurn
from smart_fork.errors import NotFound, Usage
from smart_fork.text.advice import advice


class Cutter(ABC):
    """One agent's transcripts."""

    tool: Tool
    #: How its files' names end.
    suffixes: tuple[str, ...] = (".jsonl",)
    #: Whether its program writes on in the file that is cut.
    writes_on = True
    #: Who it is where its lock (`hold`) is held.
    holder = ""

    @abstractmethod
    def detect(self, path: Path) -> bool:
        """Whether the file is one of its transcripts."""

    @abstractmethod
    def load(self, path: Path, composer: str = "") -> Transcript:
        """The session in `path`; where a file has several, the one that `composer` names.

        Raises:
            NotFound: it, or what it was forked from, is not there.
            OSError: it cannot be read.
        """

    def newest(self) -> Path | None:
        """The transcript that is meant where none is named; `None` where its logs do not tell otherwise.

        Raises:
            NotFound: there is none.
        """
        return None

    def conversations(self, path: Path) -> list[tuple[str, int]]:
        """Where a file has several: the id of each, and how many turns it has.

        Raises:
            Usage: there is one in each file.
        """
        raise Usage(
            f"One file has one conversation with {self.tool}: {path}",
            advice("List its turns without --conversations.", tool="List its turns."),
        )

    def public(self) -> Mapping[str, object]:
        """What `smart_fork.excise` offers under names that are this agent's, for scripts that have them."""
        return {}

    def written(self, path: Path) -> Path:
        """The file that is really written for a source."""
        return path

    def of_others(self, session: Transcript) -> list[bytes]:
        """The lines of other conversations in the file that is written."""
        del session
        return []

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        """Lines that name a record that goes, naming one that stays."""
        del turns, gone
        return {}

    def without_repetitions(self, session: Transcript, gone: Collection[str]) -> Edits:
        """Lines that must stay and repeat what goes, without that."""
        del session, gone
        return {}

    def is_said(self, turn: TranscriptTurn) -> bool:
        """Whether a line is part of what went on in the conversation, and not of how the session is kept."""
        return turn.role != "system"

    def numbered(self, turns: Sequence[TranscriptTurn], numbers: Sequence[int | None]) -> Sequence[int | None]:
        """These numbers of the lines, those that say the same as a message having its number as well."""
        del turns
        return numbers

    def holds(self, path: Path, keys: Collection[str]) -> bool:
        """Whether a transcript itself has one of the records with these keys."""
        try:
            return any(turn.key in keys for turn in self.load(path).own)
        except (NotFound, OSError):
            return False

    def may_have_others(self, path: Path) -> bool:
        """Whether a transcript may have records of another session, as far as its beginning says."""
        del path
        return True

    def files_of(self, path: Path) -> list[Path]:
        """All files that belong to a transcript and lie beside it."""
        del path
        return []

    def stores(self, session_id: str) -> list[Path]:
        """Other places of the agent with text of a session, which a cut leaves as they are."""
        del session_id
        return []

    def apart(self) -> list[Path]:
        """Files of the agent outside its home that may have text of sessions."""
        return []

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """The files beside a transcript that hold what goes."""
        del path, removed
        return []

    def heirs(self, session_ids: Collection[str], first: int = 0) -> list[Path]:
        """The forks that read from the files of these sessions, record `first` or later ones, and theirs."""
        del session_ids, first
        return []

    def without_header(self, session: Transcript) -> list[CutWarning]:
        """Whether the first record is gone that the agent needs."""
        del session
        return []

    def writer_of(self, session: Transcript) -> str:
        """Who has the session open, as the agent itself notes it; empty where nobody is seen."""
        del session
        return ""

    def hold(self, session: Transcript) -> int | None:
        """The agent's own lock of this session, where it has one, held by us: a descriptor to be closed.

        Raises:
            OSError: somebody else holds it.
        """
        del session
        return None
