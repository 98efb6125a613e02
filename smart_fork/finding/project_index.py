"""Opens and updates the index once for one caller, who then searches it for one project or all projects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import apsw

from indexer import repositories
from indexer.embedder import ModelUnavailableError, reporting_loading
from indexer.project import Project, is_within, resolve
from indexer.safe_files import index_db
from indexer.store.base import Scope, SessionRow
from indexer.store.sqlite import Store
from indexer.transcripts.model import AgentName
from smart_fork.display_text import shown
from smart_fork.errors import IndexUnavailable, NotFound, SmartForkError, Usage, advice
from smart_fork.finding.code_lines import parsed, touched_by
from smart_fork.finding.evidence import relatives
from smart_fork.finding.git import Repository
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_refresh import SOON_SECONDS, Engine, Refreshed, embed_some, refresh
from smart_fork.finding.project_places import AboutProject, described
from smart_fork.finding.query import LONG_WORDS, TRUNKS, Code, Query, is_of_this_branch, plain
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.finding.remote_search import RemoteSearch
from smart_fork.finding.request import FindRequest, SearchEngine, configured_engine, current_project, further
from smart_fork.finding.search import QuestionEmbeddings, check_comparable
from smart_fork.finding.session_notes import marked, tag
from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry
from smart_fork.workers.registry_path import has_registry

log = logging.getLogger(__name__)

#: Git's arguments for the subjects of the last commits that are not on a trunk, and the seconds git may take.
_LANDED = (
    "log", "--max-count=3", "--no-merges", "--no-show-signature", "--no-color", "--format=%s", "HEAD", "--not",
    *(f"--{where}{one}" for one in TRUNKS for where in ("branches=", "remotes=*/")),
)  # fmt: skip
_LANDED_SECONDS = 0.5


class ProjectIndex:
    """The index, searched by one caller for the project of `path` (default: working directory), or for all projects.

    `caller` is the id of the session that asks, if any. Nothing is read before the first question.
    """

    def __init__(
        self, engine: Engine, path: str | None = None, caller: str | None = None,
        elsewhere: RemoteSearch | None = None, *, everywhere: bool = False,
    ) -> None:  # fmt: skip
        self.engine, self.path, self.caller, self._everywhere = engine, path, caller, everywhere
        self.elsewhere = elsewhere
        self._held = ExitStack()
        self._store: Store | None = None
        self._states: dict[tuple[AgentName, str] | None, Refreshed] = {}
        self._embeddings: dict[tuple[str, ...], QuestionEmbeddings] = {}
        self._evidence: dict[tuple[str, ...], ExchangeEvidence] = {}
        self._weighed: dict[tuple[str, ...], Sequence[Mapping[str, float]]] = {}
        self._relevant: dict[str, str] = {}

    @cached_property
    def project(self) -> Project | None:
        """Return the project whose sessions are searched; `None` for all projects.

        Raises:
            Usage: there is no such directory.
        """
        return None if self._everywhere else current_project(self.path)

    @cached_property
    def directory(self) -> Path:
        """Return the directory that the question is asked from."""
        return resolve(self.path or Path.cwd())

    @cached_property
    def search_program(self) -> SearchEngine | None:
        """Return the external search program (such as qmd) that replaces the index, if one is configured."""
        return configured_engine(self.engine.environment)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Close the index at the end of the block, after all running embeddings have ended."""
        with reporting_loading(self.engine.progress), self._held:
            try:
                yield
            finally:
                self.settle()

    @contextmanager
    def index(self) -> Iterator[Store]:
        """Open the index for the block, and keep it open for later blocks. An error in the block closes it.

        Raises:
            IndexUnavailable: the index cannot be opened, or is damaged. A damaged index is set aside.
        """
        if self._store is None:
            self._store = self._held.enter_context(opened())
        try:
            yield self._store
        except BaseException:
            self._store = None
            with self._held.pop_all():
                raise

    @property
    def store(self) -> Store:
        """Return the open index, inside a ``with self.index()`` block."""
        assert self._store is not None  # noqa: S101 - it is open
        return self._store

    def scope(self, asked: FindRequest) -> Scope:
        """Return the scope of a request (the sessions to search), by project, agents, and the tag, if given."""
        scope = self.store.scope(self.project, asked.agents, automated=asked.include_automated or bool(asked.tag))
        if not asked.tag:
            return scope
        tagged = {row.row for one in marked(tag(asked.tag)) if (row := self.store.session(*one))}
        guests = self.store.guests(tagged, scope)
        return replace(scope, sessions=(*tagged, *(row.row for row in guests.values())))

    def query(self, asked: FindRequest, withheld: frozenset[str] = frozenset()) -> Query:
        """Build the query of a request, with facts about the session that asks.

        That session, its workers (agents that it started) and the `withheld` sessions are never found.
        """
        caller, own = self._caller_and_own()
        return self.relevant(asked.query(
            self.scope(asked), everywhere=self.project is None, caller=caller, hidden=own | withheld,
            relatives=relatives(self.store, caller) if caller else (), directory=self.directory,
            **self.branch_fields(asked.intent),
        ))  # fmt: skip

    def relevant(self, query: Query) -> Query:
        """Return the query with `relevant` set: a long intent without instructions on how to work ("be careful")."""
        if len(query.intent.split()) < LONG_WORDS:
            return query
        if query.intent not in self._relevant:
            from smart_fork.finding.question_instructions import without_instructions  # only long questions need it

            with suppress(ModelUnavailableError):
                self._relevant[query.intent] = without_instructions(query.intent, self.engine.embedder)
        return replace(query, relevant=self._relevant.get(query.intent, ""))

    def branch_fields(self, intent: str) -> dict[str, str]:
        """Return the query's fields about the current branch: its name; and if `intent` means it, its commits.

        They are empty without an intent, or if all projects are searched.
        """
        if not self.project or not intent:
            return {}
        branch = Repository.branch_at(self.directory)
        if not branch or branch in TRUNKS or not is_of_this_branch(intent):
            return {"branch": branch}
        try:
            done = Repository.open(self.directory, self.engine.processes).git(*_LANDED, seconds=_LANDED_SECONDS)
        except (SmartForkError, OSError) as error:  # the answer is good without
            log.info("the commits of the branch are not known: %s", error)
            return {"branch": branch}
        return {"branch": branch, "landed": " ".join(done.stdout.decode("utf-8", "replace").replace("\0", " ").split())}

    def refreshed(self, asked: FindRequest, *, vectors: bool = True) -> Refreshed:
        """Update the index for a request, and embed some passages for it. Logs are only read by the first call."""
        wanted = vectors and self.search_program is None
        return self.refreshed_for(lambda: asked.query(self.scope(asked)), vectors=wanted)

    def refreshed_for(
        self, query: Callable[[], Query], session: tuple[AgentName, str] | None = None, *, vectors: bool = True
    ) -> Refreshed:
        """Update the index for a `query`, from one `session`'s log or from all logs. Repeated calls only embed."""
        engine, state = self.engine, self._states.get(session) or self._states.get(None)
        if state is None or (session and session not in self._states and state.left != 0):
            state = refresh(self.store, engine, None if session else self.project, query, session, vectors=vectors)
        elif vectors and not state.absent:
            if session is None:  # it has been waited for already
                engine = replace(engine, embed_seconds=min(engine.embed_seconds, SOON_SECONDS))
            state = state._replace(absent=embed_some(self.store, engine, query())[0])
        self._states[session] = state
        return state

    def embeddings(self, texts: Sequence[str]) -> QuestionEmbeddings:
        """Return the embeddings of these texts, which may not be made yet. Equal texts share one object."""
        return self._embeddings.setdefault(tuple(texts), QuestionEmbeddings(self.engine.embedder, texts))

    def vectors(self, absent: str, texts: Sequence[str]) -> list[bytes]:
        """Return the embeddings of texts. Check first that they can be compared with the embeddings in the index.

        Raises:
            LookupError: the index has embeddings of another model, or none.
            ModelUnavailableError: the model cannot be loaded, or `absent` says why there is none.
        """
        check_comparable(self.store, self.engine.embedder.model, absent)
        self._begin(texts)
        made = [zip(known, one.of(), strict=True) for known, one in self._embeddings.items() if {*known} & {*texts}]
        vectors = dict(chain.from_iterable(made))
        return [vectors[text] for text in texts]

    def expect(self, intent: str, also: Sequence[str] | None) -> None:
        """Prepare a later question: begin to embed its intent and the other phrasings `also`, and open the index."""
        if (words := plain(intent)) and index_db().exists():
            self._begin((words, *further(words, also)))
            with suppress(IndexUnavailable), self.index():
                pass  # it stays open

    def settle(self) -> None:
        """Wait until no text is being embedded: a process that ends or is replaced during an embedding is aborted."""
        for one in self._embeddings.values():
            one.settle()

    def _begin(self, texts: Sequence[str]) -> None:
        if left := [text for text in texts if not any(text in known for known in self._embeddings)]:
            self.embeddings(left).begin()

    def _caller_and_own(self) -> tuple[SessionRow | None, frozenset[str]]:
        """Return the session that asks, if indexed, and the ids to hide from it: its own and its workers'."""
        if not self.caller:
            return None, frozenset()
        rows = self.store.find_sessions(self.caller)
        own = next((row for row in rows if row.session_id == self.caller), None)
        return own, frozenset({self.caller, *_workers_of(self.caller)})


def _workers_of(session_id: str) -> list[str]:
    if not has_registry():
        return []
    try:
        with Registry() as registry:
            return [worker.session_id for worker in registry.spawned_by(session_id) if worker.session_id]
    except (SmartForkError, apsw.Error, OSError) as error:  # a caller may be told of what it started: that is less bad
        log.warning("the register of workers cannot be read: %s", error)
        return []


# Sessions of another directory that a person assigns to a project.


def adopt(project: Project, directory: str, *, remove: bool = False) -> AboutProject:
    """Assign the sessions that worked in `directory` to a project; with `remove`, undo the assignment.

    Raises:
        Usage: the directory is the project's own.
        NotFound: no session worked there, or the directory was not adopted.
    """
    old = str(resolve(directory))
    if not remove and (is_within(old, project.root) or is_within(project.root, old)):
        raise Usage(f"{shown(directory)} is a directory of this project", "Give the directory that the sessions name.")
    if remove and repositories.adopted().get(old) != project.root:
        raise NotFound(
            f"{shown(directory)} was not adopted",
            advice("`smart-fork project` lists the adopted directories.", tool="Tell the user."),
        )
    with opened() as store:
        if not store.read_again(old) and old not in repositories.noted() and not remove:
            raise NotFound(
                f"No session worked in {shown(directory)}",
                advice("`smart-fork list --all-projects` lists all.", tool="Tell the user."),
            )
        repositories.adopt(old, None if remove else project.root)
    return described(project)


#: If more files are uncommitted, none is searched for: so many files do not distinguish sessions.
MAX_CHANGED = 64
#: The seconds that git may take to list the uncommitted files.
CHANGED_SECONDS = 0.5


def with_files(query: Query, code: Code, processes: Processes) -> Query:
    """Return the query with the files of the code that the question names, else the repository's uncommitted files."""
    project, given = query.scope.project, [*code.files]
    if code:
        given += [parsed(one)[0] for one in code.lines]
        patch = code.changes if isinstance(code.changes, str) else ""
        given += [one.name for one in touched_by(patch.encode("utf-8", "replace"))]
    if given or project is None or not project.git:
        return replace(query, in_play=tuple(dict.fromkeys(given)), given=True)
    try:
        changed = Repository.open(query.directory, processes).changed_files(CHANGED_SECONDS)
    except (SmartForkError, OSError) as error:  # the answer is good without
        log.info("what is changed is not known: %s", error)
        return query
    return replace(query, in_play=tuple(changed)) if len(changed) <= MAX_CHANGED else query
