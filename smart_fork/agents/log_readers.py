"""The adapters of all agents' logs, and the order of several logs of one session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from indexer.transcripts.base import AgentAdapter, Agents
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.workers.registry_path import has_registry

#: The adapters for the agents' own logs, without sessions in repositories.
OWN = Agents(*(agent.reader for agent in AGENTS))


class Readers(Agents):
    """The adapters of all agents. They also read sessions in repositories, if any are listed on this machine."""

    def __init__(self, *own: AgentAdapter) -> None:
        super().__init__(*own)
        self._own = own
        self._have_checkpoints = False
        self._look()

    def __iter__(self) -> Iterator[AgentAdapter]:
        self._look()
        return super().__iter__()

    def note(self, directory: Path) -> bool:
        """List the sessions stored in a directory's repository, to read them as logs. Return True for a new list."""
        is_new = repository_sessions.note(directory)
        self._look()
        return is_new

    def logs_of(self, agent: str, session_id: str) -> list[Path]:
        """Return a session's logs, in the order of `latest_first`."""
        return self.latest_first(self[agent], session_id, self[agent].locate(session_id))

    def original_of(self, agent: str, session_id: str) -> Path | None:
        """Return the log with the latest message among a session's logs; `None` if the session has no log."""
        return next(iter(self.logs_of(agent, session_id)), None)

    def latest_first(self, reader: AgentAdapter, session_id: str, paths: Sequence[Path]) -> list[Path]:
        """Return a session's logs (`paths`, newest files first) sorted by the time of their last message, latest first.

        Of two logs with the same time, an original comes before a copy.
        """
        if len(paths) < 2:
            return list(paths)
        ours = self.staged_copies(session_id)
        last = {path: ((file := reader.log_at(str(path))) and reader.said_at(file)) or "" for path in paths}
        found = sorted(paths, key=lambda path: (str(path) in ours, _is_copy(reader, path)))
        return sorted(found, key=last.__getitem__, reverse=True)

    def staged_copies(self, session_id: str) -> Collection[str]:
        """Return the paths of copies of a session's log that were made so that an agent could fork the session."""
        if not has_registry():
            return ()
        from smart_fork.workers.registry import Registry

        with Registry() as registry:
            return {str(path) for path, known in registry.staged_copies().items() if known == session_id}

    def unread(self, adapters: Iterable[AgentAdapter] | None = None) -> tuple[str, ...]:
        """Return a sentence for each agent (of `adapters`, by default all) whose sessions cannot be read."""
        return tuple(
            f"No session of {AGENTS.title_of(agent.name)} can be read: {why}"
            for agent in (self if adapters is None else adapters)
            if (why := agent.unread())
        )

    def _look(self) -> None:
        """Use adapters that also read repositories' sessions as soon as any process has listed some."""
        if repository_sessions.are_listed() != self._have_checkpoints:
            from smart_fork.agents.repository_session_adapter import with_repository_sessions

            self._have_checkpoints = not self._have_checkpoints
            own = map(with_repository_sessions, self._own) if self._have_checkpoints else self._own
            self._by_name = {reader.name: reader for reader in own}


def _is_copy(reader: AgentAdapter, path: Path) -> bool:
    with suppress(OSError):
        return reader.is_copy(path)
    return True


READERS = Readers(*OWN)
