"""The worker board: a card for each worker (an agent that smart-fork started), in columns such as "Working"."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from indexer.lazy_compilation import dataclass
from indexer.masking import NOTHING, Masked, beginning
from indexer.session_work import Outcome
from indexer.transcripts.model import Turn
from smart_fork.display_text import time_of
from smart_fork.errors import RegistryUnavailable, SmartForkError
from smart_fork.workers.comparison import grouped_by_start
from smart_fork.workers.observation import WorkerReader
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import has_registry
from smart_fork.workers.results import WorkerState
from smart_fork.workers.worktree import Worktree

if TYPE_CHECKING:
    from smart_fork.system.processes import Machine
    from smart_fork.workers.observation import Observation


@dataclass(frozen=True, slots=True)
class Inherited:
    """The parent's conversation in a fork: its estimated tokens, exchanges, and seconds between prompts and answers."""

    tokens: int
    exchanges: int
    seconds: float


def inherited(worker: WorkerRecord, watch: WorkerReader) -> Inherited | None:
    """Measure the parent's conversation in a fork's log; `None` if the log has none.

    Instructions and tools are not counted, because a new session loads them too.
    """
    session = watch.session_of(worker) if worker.kind == "fork" else None
    start = len(session.turns) - len(worker.own_part(session)) if session else 0
    if session is None or not start:
        return None
    had = [exchange.turns[: start - exchange.start] for exchange in session.exchanges() if exchange.start < start]
    tokens = max(0, session.loads()[start - 1] - session.instructions)
    return Inherited(tokens, sum(turns[0].prompt for turns in had), sum(map(_worked, had)))


def _worked(turns: Sequence[Turn]) -> float:
    """Return the seconds from a prompt to the agent's last message, without pauses before the next prompt."""
    times = [time_of(turn.timestamp) for turn in turns if turn.prompt or turn.role == "assistant"]
    known = [one for one in times if one is not None]
    return max(0.0, (known[-1] - known[0]).total_seconds()) if known else 0.0


#: The columns of the board in their order, with their titles.
COLUMNS = {"asks": "Needs you", "working": "Working", "idle": "Idle", "ended": "Ended"}
#: The number of ended workers that are shown.
MAX_ENDED = 12
#: The characters of a worker's last words on its card.
SAID_CHARACTERS = 400
#: The time for which a board is reused, since several windows ask for it.
FRESH_SECONDS = 1.0
_OPTION = re.compile(r"^\W*(\d)[.)]\s+(\S.*?)\s*$")


@dataclass(frozen=True, slots=True)
class ChangeCount:
    """The numbers of files changed, and of lines added and removed, in a worker's worktree."""

    files: int
    added: int
    removed: int


class WorkSummary(NamedTuple):
    """A summary of a worker's work: its last words, outcome, changes in its worktree, and its parent's conversation.

    `stamp` is the state of the worker for which it was made: if the state changes, the summary is made again.
    """

    stamp: object
    said: Masked
    outcome: Outcome
    changes: ChangeCount | None
    inherited: Inherited | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardCard:
    """One worker on the board. `hears` says how a message can reach it: "message", "queue", "resume", or "" for none.

    `question` is the worker's question without the `options`: pairs of the number that chooses one, and its text.
    `together` are the ids of all workers that got the same prompt at the same time, if there are several.
    """

    worker: WorkerState
    column: str
    hears: str
    question: str
    options: tuple[tuple[str, str], ...]
    work: WorkSummary
    together: tuple[str, ...]

    @property
    def asked(self) -> str:
        """Return a fingerprint of the worker's question. An answer is sent only if it still fits the question."""
        return asked(self.worker.waiting_for)

    @property
    def version(self) -> str:
        """Return a digest of the card's content. If it changes, the card must be drawn again."""
        return blake2b(repr(self).encode("utf-8", "replace"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class BoardView:
    """The cards of all workers on the board. `trouble` is the error if the registry of workers cannot be read."""

    cards: tuple[BoardCard, ...] = ()
    trouble: SmartForkError | None = None

    @property
    def columns(self) -> tuple[tuple[str, str, tuple[BoardCard, ...]], ...]:
        """Return the name, title and cards of each column in their order, empty columns too."""
        return tuple(
            (key, title, tuple(card for card in self.cards if card.column == key)) for key, title in COLUMNS.items()
        )

    @property
    def asks(self) -> int:
        """Return the number of workers that wait for an answer to a question."""
        return sum(card.column == "asks" for card in self.cards)

    @property
    def running(self) -> int:
        return sum(card.column != "ended" for card in self.cards)

    @property
    def version(self) -> str:
        """Return a digest of the board's content. If it changes, the board must be drawn again."""
        return blake2b("".join(card.version for card in self.cards).encode(), digest_size=8).hexdigest()


class WorkerBoard:
    """The reader of the worker board for all open browser windows.

    Only one request reads workers at a time, and summaries of unchanged workers are reused.
    """

    def __init__(self, around: Machine | None = None) -> None:
        self._watch = WorkerReader(around)
        self._looking = threading.Lock()
        self._seen: BoardView | None = None
        self._seen_at = 0.0
        self._works: dict[str, WorkSummary] = {}

    def view(self, *, fresh: bool = False) -> BoardView:
        """Return the cards of all workers, which may be `FRESH_SECONDS` old, unless `fresh` reads them now."""
        seen = self._seen
        if not self._looking.acquire(blocking=fresh or seen is None):
            return seen or BoardView()  # somebody else is looking: nobody waits for a terminal that does not answer
        try:
            if fresh or self._seen is None or time.monotonic() - self._seen_at >= FRESH_SECONDS:
                self._seen = self._look()
                self._seen_at = time.monotonic()
            return self._seen
        finally:
            self._looking.release()

    def _look(self) -> BoardView:
        if not has_registry():
            return BoardView()
        try:
            with Registry() as registry:
                return BoardView(tuple(self._cards(registry)))
        except RegistryUnavailable as error:
            return BoardView(trouble=error)

    def _cards(self, registry: Registry) -> Iterator[BoardCard]:
        known = registry.permitted()
        groups, ended, shown = _together(known), 0, set()
        for worker in known:
            if worker.is_over and ended >= MAX_ENDED:
                continue
            seen = self._watch.look(worker, registry)
            ended += seen.is_over
            shown.add(worker.id)
            now = registry.get(worker.id)
            yield BoardCard(
                worker=self._watch.described(now, seen), column=_column(seen), hears=_hears(now, seen),
                question=_question(seen), options=_options(seen), work=self._work(now, seen),
                together=groups.get(worker.id, ()),
            )  # fmt: skip
        self._works = {name: work for name, work in self._works.items() if name in shown}

    def _work(self, worker: WorkerRecord, seen: Observation) -> WorkSummary:
        """Return the summary of a worker's work. Its log is read again only if it has done something since."""
        stamp = (seen.state, seen.status, seen.last_activity, seen.tokens)
        known = self._works.get(worker.id)
        if known is None or known.stamp != stamp:
            said = beginning(self._watch.last_words(worker, seen) or NOTHING, SAID_CHARACTERS)
            begun = (known.inherited if known else None) or inherited(worker, self._watch)
            known = self._works[worker.id] = WorkSummary(
                stamp, said, self._outcome(worker, seen), self._changes(worker), begun
            )
        return known

    def _outcome(self, worker: WorkerRecord, seen: Observation) -> Outcome:
        """Return the outcome of a worker's own work if the worker is idle or has ended."""
        session = self._watch.session_of(worker) if _column(seen) in ("idle", "ended") else None
        return Outcome.of(session) if session else Outcome.UNKNOWN

    def _changes(self, worker: WorkerRecord) -> ChangeCount | None:
        here = Worktree.of(worker.worktree or "", worker.branch, worker.base_commit)
        if not worker.worktree or (files := here.changes(self._watch.around.processes)) is None:
            return None
        return ChangeCount(len(files), sum(one.added or 0 for one in files), sum(one.removed or 0 for one in files))


def asked(question: str | None) -> str:
    """Return a fingerprint of a worker's question, the same whichever option the screen shows as selected."""
    plain = re.sub(r"^\W+", "", question or "", flags=re.MULTILINE)
    return blake2b(plain.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _column(seen: Observation) -> str:
    if seen.is_over:
        return "ended"
    return {"waiting": "asks", "idle": "idle"}.get(seen.status, "working")


def _hears(worker: WorkerRecord, seen: Observation) -> str:
    """Return how `message_worker` would reach the worker now: "message", "queue", "resume", or "" for none."""
    if (headless := WorkerReader.is_headless(worker)) is None:
        return ""
    if seen.is_over:
        return "resume" if headless and worker.session_id else ""
    if headless or seen.state == "starting" or seen.status == "waiting":
        return ""
    return "queue" if seen.status == "working" else "message"


def _options(seen: Observation) -> tuple[tuple[str, str], ...]:
    if seen.question is None:
        return ()
    lines = (_OPTION.match(line) for line in (seen.waiting_for or "").splitlines())
    texts = {found[1]: found[2] for found in lines if found}
    return tuple((number, texts.get(number, "")) for number in seen.question.options)


def _question(seen: Observation) -> str:
    """Return a worker's question without its options, or with them if the text of one is unknown."""
    lines = (seen.waiting_for or "").splitlines()
    options = _options(seen)
    above = list(takewhile(lambda line: not _OPTION.match(line), lines))
    return "\n".join(above).strip() if options and all(text for _, text in options) and above else "\n".join(lines)


def _together(workers: Sequence[WorkerRecord]) -> dict[str, tuple[str, ...]]:
    """Map the id of each worker to the ids of all workers that got the same prompt at the same time."""
    same = (group for groups in grouped_by_start(workers) for group in groups if len(group) > 1)
    return {worker.id: tuple(one.id for one in reversed(group)) for group in same for worker in group}
