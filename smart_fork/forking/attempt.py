"""Creates a worker's files before it starts, and removes them again unless it takes up its task."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Self

import apsw

from indexer.files import private_dir
from indexer.transcripts.model import Session
from smart_fork import session_origins
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession, copy_folder, second_name, stage_transcript
from smart_fork.agents.cuts.cutter import Files
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.starter import ForkPlan
from smart_fork.errors import ForkRefused, SmartForkError
from smart_fork.forking import temporary_logs
from smart_fork.forking.session_copy import write_branch
from smart_fork.forking.worker import Content, WorkerSpec
from smart_fork.repository.worktree import Worktree
from smart_fork.system.processes import Machine
from smart_fork.workers.registry import Registry, WorkerRecord

log = logging.getLogger(__name__)


def undone(undo: Callable[[], object]) -> None:
    """Call `undo`. What goes wrong with it is only logged: the first error is the one to tell."""
    try:
        undo()
    except (OSError, SmartForkError, apsw.Error) as error:
        log.warning("something that was made for a worker is left: %s", error)


class Attempt:
    """The files made for a worker. Leaving the context undoes them all, newest first, unless it `succeeded`."""

    def __init__(self, machine: Machine, registry: Registry) -> None:
        self.machine = machine
        self.registry = registry
        self._made: list[Callable[[], object]] = []
        self._began = self._kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for undo in () if self._kept else reversed(self._made):
            undone(undo)

    def otherwise(self, undo: Callable[[], object]) -> None:
        """Have `undo` called unless the worker is started."""
        self._made.append(undo)

    def succeeded(self) -> None:
        """Keep everything: it runs, and what goes wrong from now on does not take that back."""
        self._began = self._kept = True

    def failed(self) -> None:
        """Keep nothing, since the worker has ended without having done anything."""
        self._kept = False

    def worktree(
        self, worker: WorkerRecord, repository: Path, name: str | None, *, with_changes: bool = False
    ) -> Worktree:
        """Make a worktree for the worker."""
        made = Worktree.create(
            repository, name, self.machine.processes, with_changes=with_changes,
            note=lambda planned: self.registry.set_planned(worker.id, planned.made),
        )  # fmt: skip
        self.otherwise(lambda: self._without(made))
        return made

    def _without(self, made: Worktree) -> None:
        """Keep a worktree in which an agent ran: its work is not discarded."""
        if not self._began:
            made.remove(self.machine.processes)
        elif problem := made.remove_if_saved(self.machine.processes):
            raise ForkRefused(problem)

    def stage(self, plan: ForkPlan, spec: WorkerSpec, worker: WorkerRecord) -> list[str]:
        """Put on disk what the plan needs there, from the source's log. Returns what the person should know of it."""
        temporary_logs.clear()
        source = spec.source if spec.source and spec.source.turns else None
        if plan.staging == "name":
            return self._name(plan, source.source_path if source else None)
        if source is None:
            return []
        if plan.staging == "transcript":
            self._transcript(plan, source.source_path, worker)
        elif plan.staging == "branch" and plan.new_session_id:
            return self._copy(plan, plan.new_session_id, source, spec.content, worker)
        return []

    def _transcript(self, plan: ForkPlan, log: Path, worker: WorkerRecord) -> None:
        folder = AGENTS.storage_of(plan.agent).folder(plan.cwd) or log.parent
        session_id, now = plan.source_session_id, self.machine.clock.now()
        target = folder / f"{session_id}{log.suffix}"
        if not target.exists():
            self.registry.set_copying(worker.id, target)
            self.registry.add_staged_copy(target, session_id=session_id, source_path=log, now=now)
            self.otherwise(lambda: self.registry.forget_staged_copy(target))
        self.otherwise(stage_transcript(log, session_id, folder).undo)

    def _name(self, plan: ForkPlan, log: Path | None) -> list[str]:
        """Its agent deletes the log otherwise, or does not find it from there: both names are one file, so that what is
        said from now on is in both. It is never undone: an agent that began at all may delete the log later.
        """
        log = log or READERS.original_of(plan.agent, plan.source_session_id)
        target = AGENTS.storage_of(plan.agent).resumed(log, plan.source_session_id, plan.cwd) if log else None
        if not log or not target:
            return []
        if target.parent != log.parent:
            self._make_room(log, target, plan.source_session_id)
            private_dir(target.parent)
            copy_folder(log.with_suffix(""), target.with_suffix(""), [])
            now, session_id = self.machine.clock.now(), plan.source_session_id
            self.registry.add_staged_copy(target, session_id=session_id, source_path=log, now=now)
        second_name(log, target)
        if not target.samefile(log):
            return [f"It continues in a copy of its log, {target}. {log} is not changed"]
        return [f"Its log is also {target} now: two names of one file"] if target.parent != log.parent else []

    def _make_room(self, log: Path, target: Path, session_id: str) -> None:
        """Take away a copy that was made for a fork, if the log still has all of it."""
        ours = {copy.path for copy in self.registry.staged_copies(session_id)}
        is_ours = str(target) in ours and target.is_file() and not target.samefile(log)
        if is_ours and Files().begins_with(log, Files().content(target)):
            target.unlink()

    def _copy(self, plan: ForkPlan, new_id: str, source: Session, content: Content, worker: WorkerRecord) -> list[str]:
        """Write what goes into the fork as a session of its agent. Keep where it is from if the log will not say it."""
        now = datetime.fromtimestamp(self.machine.clock.now())  # noqa: DTZ006 - files may be named by local time
        reader, becomes = READERS[plan.agent], NewSession(new_id, plan.cwd, now, plan.title)
        self.registry.set_copying(worker.id, AGENTS.copier_of(plan.agent).place(source.source_path, becomes))
        if content.handover:
            from smart_fork.forking.handover import write_told

            written = write_told(reader, content.handover, source, becomes, self.machine)
        else:
            written = write_branch(
                reader, source.source_path, becomes, session=source, excerpt=content.excerpt, others=content.others,
                at=plan.at, machine=self.machine,
            )  # fmt: skip
        self.otherwise(written.undo)
        if content.handover or content.others:
            through = content.point.message_id if content.point else ""
            others = [(part.session.agent, part.session.session_id) for part in content.others]
            one = session_origins.HandedOver(new_id, plan.agent, source.agent, source.session_id, through)
            session_origins.remember_handover(one, others)
            self.otherwise(lambda: session_origins.forget_handover(new_id))
        note = (
            f"Forked after {written.at}, where the agent had finished what {plan.at} is part of"
            if plan.at
            else "The unfinished answer is not in the fork"
        )
        moved = written.moved and not (content.excerpt or content.handover)
        return [*written.warnings, *([note] if moved else [])]
