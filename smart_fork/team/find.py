"""A question to the team's server: asked while the own index is searched, and waited for no longer than a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from indexer.chunks import LABELS
from indexer.light import LightEmbedder
from indexer.models import configured_embedder
from indexer.outcome import Outcome
from smart_fork import config, foreign_sessions
from smart_fork.agents import READERS
from smart_fork.agents.references import Resolved
from smart_fork.errors import NotFound, ServerUnavailable, SmartForkError, Usage
from smart_fork.retrieval.answer import Origin, TeamFound, TeamState
from smart_fork.retrieval.elsewhere import AskedElsewhere, Distant, SaidElsewhere, TheirPassage, alone, notice_of
from smart_fork.retrieval.found import meanings
from smart_fork.retrieval.meaning import Meaning
from smart_fork.retrieval.phrasings import further
from smart_fork.retrieval.query import is_long, plain
from smart_fork.retrieval.ranking import RIVALS, Parts, shares_of_phrasings, weigh_one
from smart_fork.retrieval.request import DEFAULT_LIMIT, FindRequest, check
from smart_fork.retrieval.results import UNTRUSTED, title
from smart_fork.sharing import wire
from smart_fork.sharing.passages import halves, space_of
from smart_fork.team import away, changes
from smart_fork.team.client import Client
from smart_fork.team.project import Project, opened
from smart_fork.text.snippets import printable

#: So long is waited for the vectors of a question, which the server can make as well.
VECTOR_SECONDS = 0.5


@dataclass
class TeamSearch:
    """As `smart_fork.retrieval.elsewhere.Elsewhere`: one question of one project.

    Where nobody said that the team is `wanted`, a project that has none is no error. It waits so many `seconds`.
    """

    server: str | None = None
    project: str | None = None
    wanted: bool = False
    seconds: float = field(default_factory=lambda: away.SECONDS)
    _asked: tuple[object, ...] = ()
    _said: SaidElsewhere | None = None
    _waiting: away.Waiting | None = field(default=None, repr=False)
    _origin: str = ""
    _withheld: frozenset[str] = frozenset()

    def begin(self, asked: AskedElsewhere) -> None:
        """Ask in a thread."""
        if self._asked == (same := (asked.intent, asked.also, asked.directory)):
            return  # the own index is searched again, for all agents
        self._asked, self._said = same, None
        work = partial(self._ask, asked)
        self._waiting = away.Waiting(work, "ask the team", self.seconds)

    def answer(self) -> SaidElsewhere:
        """What was answered in time; else that the server is away, and for a while nobody asks it."""
        if self._waiting is not None:
            self._waiting.is_over()
        if self._said is None:  # from now on it is too late, whatever comes
            self._said = SaidElsewhere(error=f"The team server did not answer within {self.seconds:g} seconds.")
            if self._origin:
                away.note_away(self._origin)
        return self._said

    def withheld(self) -> frozenset[str]:
        """The sessions here of which something was withdrawn that is still in them."""
        self._withheld = foreign_sessions.owing()
        return self._withheld

    def taken_out(self) -> bool:
        """Take out of the sessions here what was withdrawn, as far as that is known by now."""
        if not foreign_sessions.owing():
            return False
        done = changes.settle()
        return bool(done.changed or done.removed or foreign_sessions.owing() - self._withheld)

    @property
    def auto_fork(self) -> bool:
        """Whether a person has settled that these may be forked without being chosen."""
        return config.team().auto_fork

    @contextmanager
    def taken(self, session_id: str, directory: Path, *, keep: bool = True) -> Iterator[Resolved]:
        """A session of the team as one of this machine, and one of this machine after what was withdrawn of it."""
        from smart_fork.team.take import found_or_taken

        with found_or_taken(session_id, directory=directory, keep=keep) as (here, _):
            yield here

    def _ask(self, asked: AskedElsewhere) -> None:
        try:
            with opened(self.server, self.project, directory=asked.directory) as where:
                self._origin = where.server
                if away.is_away(where.server):
                    self._said = SaidElsewhere(error=away.AGAIN)
                    return
                with away.quick(where.client.account) as client:
                    changes.learn(client)
                    found = ask(client, where.key, asked.intent, asked.also, asked.limit, asked.meaning)
                self._said = said(where, found, (asked.intent, *asked.also))
        except (NotFound, Usage) as error:  # this project is not shared, or is none that could be
            self._said = SaidElsewhere(error=error.message if self.wanted else "")
        except ServerUnavailable as error:
            away.note_away(self._origin)
            self._said = SaidElsewhere(error=error.message)
        except SmartForkError as error:
            self._said = SaidElsewhere(error=error.message)
        except Exception as error:  # noqa: BLE001 - the answer of this machine stands
            self._said = SaidElsewhere(error=f"The team's sessions could not be searched: {type(error).__name__}")


def find_there(request: FindRequest, *, server: str | None = None, project: str | None = None) -> TeamFound:
    """Search only the team's sessions.

    Raises:
        Usage: something in the question is not acceptable.
        NotAuthenticated: nobody has logged in.
        SmartForkError: as the server says.
    """
    check(request)
    asked = plain(request.intent)
    others, limit = further(asked, request.also), int(request.limit or DEFAULT_LIMIT)
    with changes.opened(server, project) as where:
        meaning = Meaning(configured_embedder(), meanings(asked, others))
        try:
            told = ask(where.client, where.key, asked, others, max(limit, RIVALS), meaning)
        finally:
            meaning.settle()
        found = said(where, told, (asked, *others))
    snippets = request.include_snippets is not False
    hits = alone(found, asked, others, limit=limit, min_score=request.min_score, snippets=snippets)
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
    wanted = wire.made(
        wire.Search,
        question=intent,
        also=tuple(also),
        space=space_of(meaning.model, LightEmbedder.dimensions) if made else None,
        e=halves(made or ()),
        limit=min(limit, wire.PAGE),
    )
    return client.search(project, wanted)


def said(where: Project, found: wire.Found, phrasings: Sequence[str]) -> SaidElsewhere:
    """An answer as the own results are merged with it; what is odd in it is left out."""
    here = {one.session_id: one.file for one in where.tracking.ours().aliases.values() if one.session_id and one.file}
    distant = []
    for hit in found.hits:
        info = hit.session
        if len(hit.speaking) != len(phrasings) or info.agent not in READERS.names:
            continue
        log = here.get(info.id)
        speaking = [Parts(**one.model_dump()) for one in hit.speaking]
        shares = shares_of_phrasings(len(phrasings), min(len(phrasings), 2) if found.embedded else 0)
        passage = _passage(hit.passage) if hit.passage else None
        distant.append(
            Distant(
                origin=Origin(where.server, info.owner, info.id),
                agent=info.agent,
                title=info.title or _first_line(passage),
                family=hit.family,
                weighed=weigh_one(speaking, shares, similar=hit.similar, words=True, long=is_long(phrasings[0])),
                branch=info.meta.branch,
                **hit.model_dump(include={"turns", "tokens", "started", "last_activity"}),
                outcome=Outcome(hit.outcome).value,
                passage=passage,
                local_id=READERS[info.agent].id_of(log) if log else "",
            )
        )
    state = TeamState(where.server, where.key, found.sessions, found.by_words_only)
    return SaidElsewhere(tuple(distant), state)


def _passage(sent: wire.Passage) -> TheirPassage:
    return TheirPassage(**{**sent.model_dump(), "text": sent.text.removeprefix(LABELS[sent.role])})


def _first_line(passage: TheirPassage | None) -> str:
    return printable(passage.text).strip().partition("\n")[0][:200] if passage else ""
