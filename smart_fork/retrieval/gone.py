"""Prompts of sessions that their agent deleted before smart-fork read them: to be known of, never to be forked."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache

from indexer.forgotten import forgotten
from indexer.paths import index_db
from indexer.project import Project
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import KeptPrompt
from smart_fork.agents.readers import READERS
from smart_fork.errors import IndexUnavailable
from smart_fork.retrieval.answer import GonePrompt
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.query import words_of
from smart_fork.system import permission
from smart_fork.text.snippets import quoted
from smart_fork.whereabouts import in_project, where_now

log = logging.getLogger(__name__)

#: So many sessions are named, with so many characters of a prompt.
MOST, CHARACTERS = 5, 200
#: A prompt has at least this share of the words that are looked for.
LEAST_SHARE = 0.6


def gone_prompts(
    project: Project | None, agents: Sequence[AgentName], phrasings: Sequence[str] = (), limit: int = MOST
) -> tuple[GonePrompt, ...]:
    """The newest of each session that is gone, or with `phrasings` the one that has most of their words, best first."""
    found: dict[tuple[AgentName, str], list[KeptPrompt]] = {}
    for agent in agents:
        try:
            for one in _of_unknown(agent, project):
                found.setdefault((agent, one.session_id), []).append(one)
        except (IndexUnavailable, OSError) as error:  # the answer is good without
            log.info("prompts of sessions that are gone are not known: %s", error)
    asked = [frozenset(words_of(text)) for text in phrasings]

    def share(one: KeptPrompt) -> float:
        words = frozenset(words_of(one.text))
        return max((len(words & each) / len(each) for each in asked if each), default=0.0)

    best = [
        (share(one), one.moment, agent, one, len(prompts))
        for (agent, _), prompts in found.items()
        for one in [max(prompts, key=lambda one: (share(one), one.moment))]
    ]
    best = sorted((one for one in best if not asked or one[0] >= LEAST_SHARE), key=lambda one: one[:2], reverse=True)
    return tuple(
        GonePrompt(one.session_id, agent, where_now(one.directory), moment, quoted(one.text, CHARACTERS), prompts)
        for _, moment, agent, one, prompts in best[:limit]
    )


def _of_unknown(agent: AgentName, project: Project | None) -> Iterator[KeptPrompt]:
    """The prompts here of sessions without a log, of which the index knows nothing, and that nobody had forgotten."""
    kept = AGENTS[agent].prompts
    if kept is None:
        return
    reader = READERS[agent]
    known: set[str] = set()
    if index_db().exists():
        with opened() as store:
            known |= {session for of, session, _ in store.sources() if of == agent}
            known |= {row.session_id for row in store.without_log() if row.agent == agent}
    known |= {session for of, session in forgotten() if of == agent}

    @cache
    def is_here(directory: str) -> bool:
        return permission.permits(directory) and (project is None or in_project(directory, project))

    prompts = list(kept(known))
    there = {reader.id_of(file.path) for file in reader.discover()} if prompts else ()  # of very many logs
    yield from (one for one in prompts if one.session_id not in there and is_here(one.directory))
