"""The specification of a worker (an agent to run): its session, name and options, and warnings about its start."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.errors import joined
from indexer.json_values import seconds_in
from indexer.lazy_compilation import dataclass
from indexer.masking import mask
from indexer.project import project_of
from indexer.repositories import recorded
from indexer.session_work import known_files
from indexer.transcripts.model import AgentName, Session
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.request_fields import Options
from smart_fork.errors import SmartForkError, advice
from smart_fork.finding.results import resumed_part
from smart_fork.finding.session_place import WorkDirectory, as_guest
from smart_fork.forking.change_summary import change_summary
from smart_fork.forking.changes_since import SessionKnowledge
from smart_fork.forking.copies import SessionCopy
from smart_fork.forking.fork_content import ForkContent
from smart_fork.system.call_context import calling
from smart_fork.system.processes import Processes
from smart_fork.workers import worktree
from smart_fork.workers.worker_place import WorkerPlace

if TYPE_CHECKING:
    from smart_fork.agents.start_command import LaunchKind
    from smart_fork.workers.registry import WorkerKind

#: Words and characters of a name made from a prompt, with room for a number after it.
NAME_WORDS, NAME_CHARACTERS = 4, worktree.MAX_NAME_CHARACTERS - 3
UNNAMED = worktree.plain_name("")


def name_of(prompt: str | None) -> str:
    """Return a name for a worker, made from the first words of its prompt."""
    words = mask(prompt or "").split(maxsplit=NAME_WORDS)[:NAME_WORDS]
    return worktree.plain_name(" ".join(words).lower())[:NAME_CHARACTERS].strip("-._") or UNNAMED


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker to start. `source` is the session that it forks or resumes, `None` for a new session.

    A fork gets only the `content` of `source`. `written` is an existing copy of `source`, which the worker resumes.
    With `or_without`, the worker starts even if no worktree can be made.
    """

    kind: WorkerKind
    agent: AgentName
    source: Session | None = None
    options: Options = field(default_factory=Options)
    content: ForkContent = ForkContent()
    cwd: Path | None = None
    or_without: bool = False
    caller_session_id: str | None = None
    written: SessionCopy | None = None

    @property
    def called(self) -> str | None:
        """Return the name for the worker, its worktree and branch: the given one, or a fork's from its prompt."""
        named = name_of(self.options.prompt) if self.kind == "fork" else UNNAMED
        return self.options.name or (named if named != UNNAMED else None)

    @property
    def worktree_name(self) -> str | None:
        """Return the name for the worker's worktree: the requested one, otherwise the worker's name."""
        return self.options.worktree if isinstance(self.options.worktree, str) else self.called

    @property
    def form(self) -> LaunchKind:
        """Return the kind of agent command that starts the worker: begin a new session, fork one, or resume one."""
        if self.kind == "continue":
            return "resume"
        return "fork" if self.kind == "branch" else self.kind

    def note_in(self, target: Path, processes: Processes) -> str:
        """Return a summary of changes in the repository `target` since the forked session, if the options want one."""
        source = self.source if self.form == "fork" and self.options.brief else None
        if source is None or (then := self.known_until(source)) is None:
            return ""
        committed = self.options.in_worktree and not self.options.with_changes
        return change_summary(target, then, processes, worktree=committed)

    def known_until(self, session: Session) -> SessionKnowledge | None:
        """Return the edits and repository state that the forked part of `session` shows; `None` if they are unknown."""
        end = None
        written, point, excerpt = self.written, self.content.point, self.content.excerpt
        if written is not None or point is not None:
            last = written.at if written is not None else point.message_id if point else ""
            end = next((place for place, turn in enumerate(session.turns) if turn.id == last), None)
            if end is None:
                return None
            if end == len(session.turns) - 1 and excerpt is None:
                end = None
        kept = excerpt.kept if excerpt is not None else None
        known = known_files(session, str(recorded(session.cwd) or ""), end, kept)
        if (until := seconds_in(known.until)) is None:
            return None
        # The log tells what was checked out at its beginning or at its end.
        branch = str(session.git_branch) or None if end is None or session.begun_at else None
        return SessionKnowledge(
            known.edits, until, seconds_in(session.started), session.cwd, session.begun_at,
            "" if branch == "HEAD" else branch, here=not provenance.was_received(session.session_id),
        )  # fmt: skip

    def unloaded(self) -> list[str]:
        """Return a list with a warning if the agent will load only a part of the resumed session; else an empty one."""
        session = self.source if self.form == "resume" else None
        part = session and resumed_part(session.resumed, session.compacted(), len(session.turns))
        return [f"Its agent {part.sentence}"] if part else []

    def deviations(self, place: WorkerPlace, target: Path) -> list[str]:
        """Return warnings if place, agent or directory of the worker are other than the user may expect."""
        return [*_elsewhere(self, place), *_another_agent(self), *_moved(self, target)]

    def made_first(self, plan: ForkPlan, *, in_worktree: bool) -> list[str]:
        """Return a note on files that a real run makes before it runs the command, such as a worktree.

        Without these files, the command that a dry run shows would fail.
        """
        content, branch = self.content, plan.staging == "branch"
        worked_in = recorded(self.source.cwd if self.source else "")
        elsewhere = plan.staging == "transcript" and (
            worked_in is None or project_of(worked_in) != project_of(plan.cwd)
        )
        handed, distilled = content.handover is not None, content.excerpt is not None and content.handover is None
        needed = {
            "the worktree": in_worktree, "a copy of the handed-over session": branch and handed,
            "a copy of the kept exchanges": branch and distilled,
            "a copy up to that message": branch and bool(plan.at) and not distilled and not handed,
            "a copy of the session": branch and not plan.at and not distilled, "a copy of the log": elsewhere,
        }  # fmt: skip
        made = " and ".join(what for what, is_needed in needed.items() if is_needed)
        return [f"{NEEDS} {made}, which a real run makes first"] if made else []


#: The beginning of a dry run's note on steps that a real run takes first.
NEEDS = "The command needs"


def unexpected(error: Exception) -> SmartForkError:
    """Return an unexpected `error` as a `SmartForkError` that says that the fork failed, with a hint."""
    hint = advice("`smart-fork doctor` checks what forks need.", tool="Run the result's fork_command yourself.")
    return SmartForkError(f"The fork failed: {error}", hint)


def _another_agent(spec: WorkerSpec) -> list[str]:
    """Return a list with a warning if the agent to start is not the caller's own agent; else an empty list."""
    asks = calling.get()
    if asks in (None, spec.agent) or spec.source is None or spec.content.handover:
        return []
    theirs, own = AGENTS.title_of(spec.agent), AGENTS.title_of(str(asks))
    return [f"This starts {theirs}, not {own}: the session is one of {theirs}"]


def _elsewhere(spec: WorkerSpec, place: WorkerPlace) -> list[str]:
    """Return a list with a warning if the worker runs in another kind of place (tmux, process, …) than requested."""
    if spec.options.place in (None, place.name):
        return []
    return [f"This {AGENTS.title_of(spec.agent)} has no background sessions of its own: it runs as a {place.name}"]


def _moved(spec: WorkerSpec, target: Path) -> list[str]:
    """Return a list with a warning if the session, unasked, continues in another directory than its own."""
    if spec.source is None or spec.cwd is not None:
        return []
    if WorkDirectory(spec.source.cwd).now == spec.source.cwd:
        return _as_guest(spec.source, target)
    return [f"Its directory is gone: {WorkDirectory(spec.source.cwd).shown}. It continues in {target}"]


def _as_guest(session: Session, target: Path) -> list[str]:
    """Return a list with a warning if the session also worked in the current repository, but its fork does not."""
    try:
        here = project_of(Path.cwd())
    except OSError:  # that directory is gone
        return []
    if not session.turns or WorkDirectory(str(target)).is_in(here) or not as_guest(session, here):
        return []
    other = advice("--cwd DIR has it work elsewhere.", tool="project_path has it work elsewhere.")
    return [joined(f"It worked in {here.root}, but began in {target}: the fork works there", other)]


# Writes the command of ours for a fork, with all that was asked for: a dry run says it where the agent's own fails.


def preceded(prompt: str | None, note: str) -> str | None:
    """Return `prompt` with `note` before it; only `prompt` if one of both is empty, or both together are too long."""
    if not note or not (prompt or "").strip():
        return prompt
    both = f"{note}\n\n{prompt}"
    return both if ForkPlan.fits(both) else prompt
