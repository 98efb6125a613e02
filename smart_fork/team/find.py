"""A question to the team's server: asked while the own index is searched, and waited for no longer than a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from pydantic import ValidationError

from indexer.embedder import Embedder
from indexer.light import LightEmbedder
from indexer.models import configured_embedder
from indexer.outcome import Outcome
from indexer.paths import private_dir, state_home
from smart_fork.agents import READERS
from smart_fork.errors import NotFound, ServerUnavailable, SmartForkError, Usage
from smart_fork.retrieval.answer import Origin, TeamFound, TeamState
from smart_fork.retrieval.elsewhere import AskedElsewhere, Distant, SaidElsewhere, TheirPassage, alone, notice_of
from smart_fork.retrieval.found import meanings
from smart_fork.retrieval.meaning import Meaning
from smart_fork.retrieval.phrasings import further
from smart_fork.retrieval.query import plain
from smart_fork.retrieval.ranking import RIVALS, Parts, shares_of_phrasings, weigh_one
from smart_fork.retrieval.request import FindRequest, check
from smart_fork.retrieval.results import UNTRUSTED, title
from smart_fork.sharing import wire
from smart_fork.sharing.passages import halves, space_of
from smart_fork.snippets import printable
from smart_fork.team import changes
from smart_fork.team.client import Client
from smart_fork.team.project import Project, opened
from smart_fork.team.settings import settings

#: A server that does not answer costs so long, and is asked again after so long.
SECONDS, AWAY_SECONDS = 1.5, 30.0
#: So long is waited for the vectors of a question, which the server can make as well.
VECTOR_SECONDS = 0.5


@dataclass
class TeamSearch:
    """As `smart_fork.retrieval.elsewhere.Elsewhere`: one question of one project.

    Where nobody said that the team is `wanted`, a project that has none is no error. It waits so many `seconds`, or
    `SECONDS`.
    """

    server: str | None = None
    project: str | None = None
    wanted: bool = False
    seconds: float | None = None
    _asked: tuple[object, ...] = ()
    _said: SaidElsewhere | None = None
    _until: float = 0.0
    _thread: threading.Thread | None = field(default=None, repr=False)

    def begin(self, asked: AskedElsewhere) -> None:
        """Ask in a thread."""
        if self._asked == (same := (asked.intent, asked.also, asked.directory)):
            return  # the own index is searched again, for all agents
        self._asked, self._said = same, None
        self._until = time.monotonic() + self._patience
        if is_away():
            self._said = SaidElsewhere(error=_away_in_words())
            return
        self._thread = threading.Thread(target=self._ask, args=(asked,), name="ask the team", daemon=True)
        self._thread.start()

    def answer(self) -> SaidElsewhere:
        """What was answered in time; else that the server is away, and for a while nobody asks it."""
        if self._thread is not None:
            self._thread.join(max(0.0, self._until - time.monotonic()))
        if self._said is None:
            note_away()
            return SaidElsewhere(error=f"The team's server has not answered within {self._patience:g} seconds.")
        return self._said

    @property
    def _patience(self) -> float:
        return SECONDS if self.seconds is None else self.seconds

    @property
    def auto_fork(self) -> bool:
        """Whether a person has settled that these may be forked without being chosen."""
        return settings().auto_fork

    @contextmanager
    def taken(self, session_id: str, directory: Path) -> Iterator[str]:
        """A session of the team as one of this machine."""
        from smart_fork.team.take import found_or_taken

        with found_or_taken(session_id, directory=directory) as (local_id, _):
            yield local_id

    def _ask(self, asked: AskedElsewhere) -> None:
        try:
            with opened(self.server, self.project, directory=asked.directory) as where:
                quick = Client(where.client.account, times=httpx2.Timeout(self._patience), pauses=())
                with quick as client:
                    found = ask(client, where.key, asked.intent, asked.also, asked.limit, asked.meaning)
                self._said = said(where, found, 1 + len(asked.also))
        except (NotFound, Usage) as error:  # this project is not shared, or is none that could be
            self._said = SaidElsewhere(error=error.message if self.wanted else "")
        except ServerUnavailable as error:
            note_away()
            self._said = SaidElsewhere(error=error.message)
        except SmartForkError as error:
            self._said = SaidElsewhere(error=error.message)
        except Exception as error:  # noqa: BLE001 - the answer of this machine stands
            self._said = SaidElsewhere(error=f"The team's sessions could not be searched: {type(error).__name__}")


def find_there(
    intent: str, also: Sequence[str] = (), *, server: str | None = None, project: str | None = None, limit: int = 5,
    min_score: float | None = None, snippets: bool = True, embedder: Embedder | None = None,
) -> TeamFound:  # fmt: skip
    """What the team's sessions know about a question, without one's own.

    Raises:
        Usage: something in the question is not acceptable.
        NotAuthenticated: nobody has logged in.
        SmartForkError: as the server says.
    """
    request = FindRequest(intent, limit=limit, min_score=min_score, also=also)
    check(request)
    asked, others = plain(intent), further(plain(intent), also)
    with changes.opened(server, project) as where:
        meaning = Meaning(embedder or configured_embedder(), meanings(asked, others))
        found = said(where, ask(where.client, where.key, asked, others, max(limit, RIVALS), meaning), 1 + len(others))
    hits = alone(found, asked, others, limit=limit, min_score=min_score, snippets=snippets)
    assert found.state is not None  # noqa: S101 - it was answered
    return TeamFound(
        query=title(asked), also=tuple(map(title, others)), notice=notice_of(hits, UNTRUSTED), count=len(hits),
        results=hits, team=found.state,
    )  # fmt: skip


def ask(  # noqa: PLR0917 - the question
    client: Client, project: str, intent: str, also: Sequence[str], limit: int, meaning: Meaning
) -> wire.Found:
    """What a server knows about a question. It makes the vectors itself where they are not made here in a moment.

    Raises:
        Usage: the question cannot be asked.
        SmartForkError: as the server says.
    """
    made = meaning.within(VECTOR_SECONDS) if meaning.model == LightEmbedder().model else None
    try:
        wanted = wire.Search(
            question=intent,
            also=tuple(also),
            space=space_of(meaning.model, LightEmbedder.dimensions) if made else None,
            e=halves(made or ()),
            limit=min(limit, wire.PAGE),
        )
    except ValidationError:
        raise Usage("The question is too long to be asked of a server.") from None
    return client.search(project, wanted)


def said(where: Project, found: wire.Found, phrasings: int) -> SaidElsewhere:
    """An answer as the own results are merged with it; what is odd in it is left out."""
    here = {one.session_id: one.file for one in where.tracking.ours().aliases.values() if one.session_id and one.file}
    distant = []
    for hit in found.hits:
        info = hit.session
        if len(hit.speaking) != phrasings or info.agent not in READERS.names:
            continue
        log = here.get(info.id)
        speaking = [Parts(**one.model_dump()) for one in hit.speaking]
        shares = shares_of_phrasings(phrasings, min(phrasings, 2) if found.embedded else 0)
        distant.append(
            Distant(
                origin=Origin(where.server, info.owner, info.id),
                agent=info.agent,
                title=info.title or _first_line(hit.passage),
                family=hit.family,
                weighed=weigh_one(speaking, shares, similar=hit.similar, words=True),
                branch=info.meta.branch,
                turns=hit.turns,
                tokens=hit.tokens,
                started=hit.started,
                last_activity=hit.last_activity,
                outcome=Outcome(hit.outcome).value,
                passage=TheirPassage(**hit.passage.model_dump()) if hit.passage else None,
                local_id=READERS[info.agent].id_of(log) if log else "",
            )
        )
    state = TeamState(where.server, where.key, found.sessions, found.by_words_only)
    return SaidElsewhere(tuple(distant), state)


def is_away() -> bool:
    """Whether the server did not answer a moment ago: then nobody waits for it again."""
    try:
        return 0 <= time.time() - _mark().stat().st_mtime < AWAY_SECONDS
    except OSError:
        return False


def note_away() -> None:
    """Let others know for a while that it does not answer."""
    private_dir(_mark().parent)
    _mark().touch(mode=0o600)


def _mark() -> Path:
    return state_home() / "team" / "away"


def _away_in_words() -> str:
    return f"The team's server did not answer a moment ago; it is asked again after {AWAY_SECONDS:g} seconds."


def _first_line(passage: wire.Passage | None) -> str:
    return printable(passage.text).strip().partition("\n")[0].removeprefix("User: ")[:200] if passage else ""
