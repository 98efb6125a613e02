"""A question to the team's server, asked while the own index is searched and waited for no longer than a moment; and
the team's session that somebody means, written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from indexer.embedding import LightEmbedder, configured_embedder
from indexer.export import LABELS
from indexer.outcome import Outcome
from indexer.store.base import Scope
from indexer.transcripts.model import AgentName
from smart_fork import config, session_origins
from smart_fork.agents import AGENTS
from smart_fork.agents.readers import READERS
from smart_fork.agents.references import Resolved
from smart_fork.errors import Ambiguous, NotAuthenticated, NotFound, ServerUnavailable, SmartForkError, Usage
from smart_fork.finding import sessions
from smart_fork.finding.answer import TeamFound, TeamState
from smart_fork.finding.query import Query
from smart_fork.finding.ranking import RIVALS
from smart_fork.finding.remote_search import RemoteAnswer, RemotePassage, RemoteSession, weighed_there
from smart_fork.finding.request import FindRequest
from smart_fork.finding.search import Meaning
from smart_fork.finding.session_view import Origin
from smart_fork.sharing import received_logs
from smart_fork.sharing.local_logs import local_in
from smart_fork.sharing.tracking import Alias
from smart_fork.sharing.withdrawal import apply_pending
from smart_fork.snippets import printable
from smart_fork.team import client, login, wire
from smart_fork.team.branch import BranchRequest, BranchVerb, branch
from smart_fork.team.client import Client
from smart_fork.team.project import (
    TeamProject,
    apply_withdrawals,
    apply_withdrawals_to,
    fetch_withdrawals,
    opened,
    opened_current,
)
from smart_fork.team.pull import PullOptions, free_alias
from smart_fork.team.records import halves, space_of


@dataclass(frozen=True, slots=True)
class FetchedSession:
    """A session of this machine that begins as one of the team's.

    `session_id` is that of this machine, `source_id` that of the server. `there` says that it was here before, `named`
    that it was meant by its alias. `warnings` tell what is not in it.
    """

    session_id: str
    agent: AgentName
    path: Path
    alias: str
    source_id: str
    there: bool
    named: bool = False
    warnings: tuple[str, ...] = ()


@contextmanager
def fetched(reference: str, *, directory: Path | None = None, keep: bool = True) -> Iterator[Resolved]:
    """Yield the session that a reference means, on this machine: a local session or worker, an alias, or a team
    session, which is written here.

    One that is not to `keep` is written for as long as somebody looks at it.

    Raises:
        SmartForkError: there is none here, and none of the team's.
    """
    try:
        here = sessions.locate(reference)
    except Ambiguous:  # no team knows better which of them is meant
        raise
    except (NotFound, Usage) as error:
        missing = error
    else:
        if here.path is not None:
            apply_withdrawals_to(here.path, here.agent)
        yield Resolved.here(reference)
        return
    with _taken_there(reference, missing, directory, keep=keep) as one:
        yield Resolved(one.session_id, "alias" if one.named else "team", one.warnings)


def is_shared(reference: str) -> bool:
    """Return True if the team has a session of that id, or an alias of that name is tracked here."""
    with suppress(SmartForkError), opened() as where, suppress(NotFound):
        return where.tracking.read().named(reference) is not None or bool(where.found(reference))
    return False


@contextmanager
def _taken_there(
    reference: str, missing: SmartForkError, directory: Path | None, *, keep: bool
) -> Iterator[FetchedSession]:
    """Take a session of the team: by an id, 8 or more characters of one, an alias, or an address.

    Where there is none either, it is what was `missing` here that is told. Where what is begun with it fails, or it is
    not to be kept, what was written for it is taken away again.
    """
    try:
        if not login.is_known():
            raise missing
        with opened(directory=directory) as where:
            one = _by_alias(where, reference) or _there(where, reference)
        session_origins.refuse_pending_withdrawal(one.session_id)
    except (NotFound, NotAuthenticated, Usage):
        raise missing from None
    passes = session_origins.viewing_copy(one.session_id, one.source_id) if not (keep or one.there) else nullcontext()
    try:
        with passes:
            yield one
    except BaseException:
        keep = False
        raise
    finally:
        if not (keep or one.there):
            _take_away(where, one)


def _by_alias(where: TeamProject, reference: str) -> FetchedSession | None:
    """The log that an alias names, which is here also where the server is not.

    One that is the beginning of an id means what has that id, as it is now.
    """
    known = where.tracking.read().named(reference)
    if known is None or known[1].file is None or not _is_as_it_was(where, known[1]):
        return None
    if (_source(known[1]) or "").startswith(known[0]) and not client.is_away(where.server):
        return None
    one = _taken(*known, named=True)
    apply_withdrawals_to(one.path, one.agent)
    return one


def _there(where: TeamProject, reference: str) -> FetchedSession:
    """A session that the server has, written here unless it is here as it is there."""
    source_id = where.found(reference).session.id
    apply_withdrawals(where.client)
    return _here_before(where, source_id) or _written(where, source_id)


def _here_before(where: TeamProject, source_id: str) -> FetchedSession | None:
    """One that is tracked and is one's own; or whose log is as it was written, and all that the server has."""
    for name, one in where.tracking.read().aliases.items():
        if _source(one) == source_id and _is_as_it_was(where, one) and (one.session_id or _is_whole(where, one)):
            return _taken(name, one)
    return None


def _is_whole(where: TeamProject, one: Alias) -> bool:
    """Return True if a copy has all records that the shared session has now."""
    there = where.client.session(where.key, one.parent_id or "").session
    return (there.record_count, there.head_digest) == (one.base_count, one.base_digest)


def _taken(name: str, one: Alias, *, named: bool = False) -> FetchedSession:
    path = one.file or Path()
    session_id = READERS[one.platform].id_of(path)
    return FetchedSession(session_id, one.platform, path, name, _source(one) or "", there=True, named=named)


def _source(one: Alias) -> str | None:
    """The shared session that a log of this machine is, or began as."""
    return one.session_id or one.parent_id


def _is_as_it_was(where: TeamProject, one: Alias) -> bool:
    here = local_in(one.file, one.platform, where.place.root)
    return here is not None and (one.session_id is not None or here.digest(len(here.records)) == one.local_digest)


def _written(where: TeamProject, source_id: str) -> FetchedSession:
    info = where.client.session(where.key, source_id, "fork").session
    before = where.tracking.read()
    current, name = before.current, free_alias(before, source_id, new=True)
    verb: BranchVerb = "branch" if where.is_mine(info) else "fork"
    done = branch(where, verb, source_id, BranchRequest(local=True), PullOptions(alias=name))
    where.tracking.change(lambda after: after.model_copy(update={"current": current}) if current else after)
    path = Path(done.files[0])
    lost = [f"Not in it: {', '.join(f'{number} {what}' for what, number in done.lost.items())}"] if done.lost else []
    session_id = READERS[done.agent].id_of(path)
    return FetchedSession(session_id, done.agent, path, name, source_id, there=False, warnings=(*done.warnings, *lost))


def _take_away(where: TeamProject, one: FetchedSession) -> None:
    known = received_logs.find(one.path, one.agent)
    AGENTS.files_of(one.agent).remove(one.path)
    if known is not None:
        known.forget()
    session_origins.forget_foreign(one.session_id)
    where.tracking.change(lambda tracked: tracked.without(one.alias) if one.alias in tracked.aliases else tracked)


#: So long is waited for the vectors of a question, which the server can make as well.
VECTOR_SECONDS = 0.5


@dataclass
class TeamSearch:
    """As `smart_fork.finding.remote_search.RemoteSearch`: one question of one project.

    Where nobody said that the team is `wanted`, a project that has none is no error. It waits so many `seconds`.
    """

    server: str | None = None
    project: str | None = None
    wanted: bool = False
    seconds: float = field(default_factory=lambda: client.SECONDS)
    _asked: tuple[object, ...] = ()
    _said: RemoteAnswer | None = None
    _waiting: client.PendingAnswer | None = field(default=None, repr=False)
    _origin: str = ""
    _withheld: frozenset[str] = frozenset()

    def begin(self, query: Query, meaning: Meaning) -> None:
        """Ask in a thread."""
        if self._asked == (same := (query.phrasings, query.directory)):
            return  # the own index is searched again, for all agents
        self._asked, self._said = same, None
        work = partial(self._ask, query, meaning)
        self._waiting = client.PendingAnswer(work, "ask the team", self.seconds)

    def answer(self) -> RemoteAnswer:
        """Return the answer if it arrived in time. Otherwise the server is unavailable, and skipped for a while."""
        if self._waiting is not None:
            self._waiting.is_over()
        if self._said is None:  # from now on it is too late, whatever comes
            self._said = RemoteAnswer(error=f"The team server did not answer within {self.seconds:g} seconds.")
            if self._origin:
                client.note_away(self._origin)
        return self._said

    def withheld(self) -> frozenset[str]:
        """The sessions here of which something was withdrawn that is still in them."""
        self._withheld = session_origins.pending_withdrawals()
        return self._withheld

    def taken_out(self) -> bool:
        """Take out of the sessions here what was withdrawn, as far as that is known by now."""
        if not session_origins.pending_withdrawals():
            return False
        done = apply_pending()
        return bool(done.changed or done.removed or session_origins.pending_withdrawals() - self._withheld)

    @property
    def auto_fork(self) -> bool:
        """Return True if the user allows forking these sessions without choosing one."""
        return config.team().auto_fork

    def _ask(self, query: Query, meaning: Meaning) -> None:
        try:
            with opened(self.server, self.project, directory=query.directory) as where:
                self._origin = where.server
                if client.is_away(where.server):
                    self._said = RemoteAnswer(error=client.AGAIN)
                    return
                with client.quick(where.client.account) as quick:
                    fetch_withdrawals(quick)
                    found = ask(quick, where.key, query, meaning)
                self._said = said(where, found, query.phrasings)
        except (NotFound, Usage) as error:  # this project is not shared, or is none that could be
            self._said = RemoteAnswer(error=error.message if self.wanted else "")
        except ServerUnavailable as error:
            client.note_away(self._origin)
            self._said = RemoteAnswer(error=error.message)
        except SmartForkError as error:
            self._said = RemoteAnswer(error=error.message)
        except Exception as error:  # noqa: BLE001 - the answer of this machine stands
            self._said = RemoteAnswer(error=f"The team's sessions could not be searched: {type(error).__name__}")


def find_there(request: FindRequest, *, server: str | None = None, project: str | None = None) -> TeamFound:
    """Search only the team's sessions.

    Raises:
        Usage: something in the question is not acceptable.
        NotAuthenticated: nobody has logged in.
        SmartForkError: as the server says.
    """
    query = request.checked().query(Scope())
    with opened_current(server, project) as where:
        meaning = Meaning(configured_embedder(), query.meanings)
        try:
            told = ask(where.client, where.key, replace(query, limit=max(query.limit, RIVALS)), meaning)
        finally:
            meaning.settle()
        found = said(where, told, query.phrasings)
    return found.answer_alone(query, snippets=request.include_snippets is not False)


def ask(client: Client, project: str, query: Query, meaning: Meaning) -> wire.SearchAnswer:
    """Search on a server. It computes the vectors if they cannot be made here in a moment.

    Raises:
        Usage: the question cannot be asked.
        SmartForkError: as the server says.
    """
    made = meaning.within(VECTOR_SECONDS) if meaning.model == LightEmbedder().model else None
    wanted = wire.made(
        wire.Search,
        question=query.relevant or query.intent,
        also=query.also,
        space=space_of(meaning.model, LightEmbedder.dimensions) if made else None,
        e=halves(made or ()),
        limit=min(query.limit, wire.PAGE),
    )
    return client.search(project, wanted)


def said(where: TeamProject, found: wire.SearchAnswer, phrasings: Sequence[str]) -> RemoteAnswer:
    """An answer as the own results are merged with it; what is odd in it is left out."""
    here = {one.session_id: one.file for one in where.tracking.ours().aliases.values() if one.session_id and one.file}
    distant = []
    for hit in found.hits:
        info = hit.session
        if len(hit.speaking) != len(phrasings) or info.agent not in READERS.names:
            continue
        log = here.get(info.id)
        speaking = [one.model_dump() for one in hit.speaking]
        passage = None
        if hit.passage is not None:
            there = hit.passage.model_dump(exclude={"message_id"})
            passage = RemotePassage(**there | {"text": hit.passage.text.removeprefix(LABELS[hit.passage.role])})
        distant.append(
            RemoteSession(
                origin=Origin(where.server, info.owner, info.id),
                agent=info.agent,
                title=info.title or _first_line(passage),
                family=hit.family,
                weighed=weighed_there(speaking, phrasings, similar=hit.similar, embedded=found.embedded),
                branch=info.meta.branch,
                **hit.model_dump(include={"turns", "tokens", "started", "last_activity"}),
                outcome=Outcome(hit.outcome).value,
                passage=passage,
                local_id=READERS[info.agent].id_of(log) if log else "",
            )
        )
    state = TeamState(where.server, where.key, found.sessions, found.by_words_only)
    return RemoteAnswer(tuple(distant), state)


def _first_line(passage: RemotePassage | None) -> str:
    return printable(passage.text).strip().partition("\n")[0][:200] if passage else ""
