"""Create branches of the user's own shared sessions, and forks of other people's shared sessions.

By default, the new session is created on the server and written to this machine. Options turn off one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.errors import Conflict, NotFound, ServerUnavailable, Usage, WrongVerb
from smart_fork.forking.branch import command_to_resume
from smart_fork.forking.copies import SessionCopy, write_copy
from smart_fork.sharing import canonical, log_register
from smart_fork.sharing.local_logs import exchange_end, read_received
from smart_fork.sharing.outgoing import prepare
from smart_fork.sharing.tracking import Alias, timestamp
from smart_fork.team import PullOptions, pull, wire
from smart_fork.team.download import Download, download
from smart_fork.team.project import TeamProject
from smart_fork.team.sharing_result import SharingResult, shared_result, unshared_result, written_fields
from smart_fork.team.tracked_sessions import (
    PendingCreation,
    alias_of_session,
    changed_on_server,
    chosen_alias,
    free_alias,
    track_session,
)

if TYPE_CHECKING:
    from smart_fork.sharing.local_logs import WrittenLog
    from smart_fork.sharing.outgoing import Outgoing
    from smart_fork.sharing.tracking import Tracked

PAST_CHANGED = "The remote session has changed its past."
BranchVerb = Literal["branch", "fork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamBranchRequest:
    """A request for a new session with the first `at` messages (`None`: all) of a shared one.

    It is called a branch if the shared session is the user's own, else a fork. With `pull`, it is also written on this
    machine; with `local`, it is on this machine only, until it is pushed.
    """

    description: wire.SessionChange
    at: int | None = None
    local: bool = False
    pull: bool = True


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The first `count` records of the downloaded session `source`: the content of the new branch or fork.

    `moved` is true if they contain more than the requested messages, to end with a finished answer. It is `None` if no
    number of messages was requested.
    """

    source: Download
    count: int
    moved: bool | None


def branch(
    project: TeamProject, verb: BranchVerb, reference: str | None, asked: TeamBranchRequest, taken_as: PullOptions
) -> SharingResult:
    """Branch one of the user's own sessions, or fork another person's session.

    A fork lacks the agent's hidden thoughts, since agents bind thoughts to their owner's account.

    Raises:
        WrongVerb: `verb` is "branch" for another person's session, or "fork" for the user's own.
        SmartForkError: the branch or fork was not created.
    """
    source_id = project.session_id_of(reference)
    if asked.local and not asked.pull:
        raise Usage("--local and --no-pull leave nothing to do", "Give one of them.")
    project = project.in_clone_of(taken_as.into)
    taken_as = pull.for_project(taken_as, project.place.root)
    if project.away is not None:
        return _Branching(project, verb, asked, taken_as).offline(source_id)
    read = project.client.session(project.key, source_id)
    mine = project.is_mine(read.session)
    if verb == "branch" and not mine:
        raise WrongVerb(wire.NOT_OWNER)
    if verb == "fork" and mine and not taken_as.force:
        raise WrongVerb(wire.IS_OWNER)
    if taken_as.platform not in (None, read.session.agent):
        if taken_as.platform == pull.RECORD_FILE_PLATFORM:
            raise Usage("--platform file is for pull alone", "Pull the session, or branch it for an agent.")
        if not asked.pull:
            raise Usage("--platform writes the session here, and --no-pull does not", "Give one of them.")
        asked, taken_as = replace(asked, local=True), taken_as.for_agent(read.session.agent)
    if asked.local:  # nothing else says to the server who has a copy, to be told of what is withdrawn
        read = project.client.session(project.key, source_id, "fork")
    command = _Branching(project, verb, asked, taken_as)
    diverged = _diverged_alias(project, read.session) if verb == "branch" and asked.pull else None
    if diverged is not None and asked.at is None:
        return command.from_diverged(*diverged, read.session)
    source = download(project.client, read) if asked.pull or asked.at is not None else Download(read.session, ())
    start = _beginning(project, source, asked.at)
    if diverged is not None and start.count > diverged[1].base_count:
        raise Usage(
            f"--at {asked.at} is a different message here and on the server",
            f"smart-fork team branch {diverged[0]} takes all local records. --at accepts only common ones.",
        )
    begun = None if asked.local else PendingCreation.begin(project, verb, source_id, start.count)
    name = command.name(source_id, begun.session_id if begun else None)
    writes = (
        pull.written_copy(project, source, taken_as, others=not mine, count=start.count)
        if asked.pull
        else nullcontext()
    )
    with writes as written:
        if begun is not None:
            return command.on_server(start, written, begun, name)
        assert written is not None  # noqa: S101 - what is kept from the server is written here
        return command.on_this_machine(start, written, name)


def _diverged_alias(project: TeamProject, info: wire.SessionInfo) -> tuple[str, Alias] | None:
    """Return (name, alias) of a session if it got new records both here and on the server; else `None`."""
    for name, one in project.tracking.ours().aliases.items():
        if one.session_id == info.id and changed_on_server(one, info) and (project.logs.ahead(one) or 0) > 0:
            return name, one
    return None


def create_with_common_records(
    project: TeamProject,
    begun: PendingCreation,
    source_id: str,
    one: Alias,
    description: wire.SessionChange,
    *,
    name: str,
) -> tuple[wire.SessionInfo, bool]:
    """Create a session on the server with the records that the local log of `one` has in common with its parent.

    `source_id` is the parent's id. If an interrupted command has created the session already, use that session. Return
    the session, and True if this call created it.

    Raises:
        NotFound: the parent session is gone.
        Conflict: the parent session begins with other records than `one`.
    """
    if (there := begun.existing_session()) is not None:
        child, created = update_description(project, there.session, description), False
    else:
        created = True
        try:
            source = project.client.session(project.key, source_id).session
            verb: BranchVerb = "branch" if project.is_mine(source) else "fork"
            child = create_on_server(project, begun, source, one.base_count, description, verb=verb)
        except NotFound as error:
            raise NotFound(error.message, unparented_hint(name)) from error
    if child.base_digest != one.base_digest:
        raise Conflict(PAST_CHANGED, unparented_hint(name))
    return child, created


def unparented_hint(name: str) -> str:
    """Return the hint to push a session without its parent, which the server lacks or has with other records."""
    return f"smart-fork team push {name} --force shares the local session without a parent."


def _beginning(project: TeamProject, source: Download, at: int | None) -> _Beginning:
    if at is None:
        return _Beginning(source, source.info.record_count, None)
    info = source.info
    with read_received(source.records, info.agent, info.id, project.place.root, others=False) as one:
        return _Beginning(source, *one.end(at))


def create_on_server(
    project: TeamProject,
    begun: PendingCreation,
    source: wire.SessionInfo,
    count: int,
    description: wire.SessionChange,
    *,
    verb: BranchVerb,
    force: bool = False,
) -> wire.SessionInfo:
    """Create a branch or fork with the first `count` records of `source`. With `force`, fork even an own session."""
    wanted = wire.valid_message(
        wire.Branch,
        verb=verb,
        id=begun.session_id,
        source_id=source.id,
        count=count,
        force=force,
        **description.model_dump(),
    )
    try:
        return project.client.branch(project.key, wanted).session
    except NotFound:
        if not begun.again:
            raise
        other = wanted.model_copy(update={"id": begun.with_new_id().session_id})  # it was made, and deleted since
        return project.client.branch(project.key, other).session


def update_description(project: TeamProject, info: wire.SessionInfo, wanted: wire.SessionChange) -> wire.SessionInfo:
    """Change the description of an existing session to `wanted`, if it is not empty. Return the session."""
    return project.client.change(project.key, info.id, wanted) if wanted != wire.SessionChange() else info


@dataclass(frozen=True, slots=True)
class _Branching:
    """One run of the command ``team branch`` or ``team fork``, with its request and options."""

    project: TeamProject
    verb: BranchVerb
    asked: TeamBranchRequest
    taken_as: PullOptions

    def name(self, source_id: str, new_id: str | None) -> str:
        """Return the alias (the local name) for the new session. `new_id` is its id, if the server has it."""
        tracked = self.project.tracking.read()
        if new_id is not None:
            return chosen_alias(tracked, self.taken_as, new_id)
        return chosen_alias(
            tracked, self.taken_as, "", None if self.taken_as.alias else free_alias(tracked, source_id, new=True)
        )

    def from_diverged(self, before: str, one: Alias, info: wire.SessionInfo) -> SharingResult:
        """Branch the local log of the session with the alias `before`, which got new records here and on the server.

        On the server, the branch first gets only the common records. Its next push sends the other local records.
        """
        if self.taken_as.platform not in (None, one.platform) or self.taken_as.into is not None:
            raise Usage(
                f"--platform and --into take the shared records, but {before} continued both here and on the server",
                f"smart-fork team branch {before}, then branch the new session with these options.",
            )
        begun = (
            None
            if self.asked.local
            else PendingCreation.begin(self.project, "branch", info.id, one.base_count, one.file)
        )
        child = (
            None
            if begun is None
            else create_with_common_records(self.project, begun, info.id, one, self.asked.description, name=before)[0]
        )
        name = self.name(info.id, child.id if child else None)
        said = {
            "session_id": child.id if child else None,
            "visibility": child.visibility if child else self.asked.description.visibility or "private",
            "title": child.title if child else self.asked.description.title or info.title,
            "revision": child.revision if child else info.revision,
        }
        alias = one.apart().model_copy(update=said)

        def change(tracked: Tracked) -> Tracked:
            known = tracked if begun is None else begun.removed_from(tracked)
            return known.with_alias(before, known.aliases[before].elsewhere()).with_alias(name, alias)

        more = self.project.logs.ahead(one)
        self.project.tracking.change(change)
        if child is None:
            done = unshared_result("branch", self.project, name, alias, info.agent)
        else:
            done = replace(shared_result("branch", self.project, child, name), created=True, files=one.files)
        warnings = (
            f"{more} of its records are only on this machine: smart-fork team push {name} sends them.",
            f"{before} is the session on the server: smart-fork team pull {before} writes it here.",
        )
        return replace(done, warnings=warnings)

    def on_server(
        self, start: _Beginning, written: WrittenLog | None, begun: PendingCreation, name: str
    ) -> SharingResult:
        """Create the branch or fork on the server, or take the one of an interrupted command, and track it."""
        there = begun.existing_session()
        if there is not None and there.session.record_count != start.count:  # somebody goes on in that one already
            begun, there = begun.with_new_id(), None
        if there is not None:
            info = update_description(self.project, there.session, self.asked.description)
        else:
            info = create_on_server(
                self.project,
                begun,
                start.source.info,
                start.count,
                self.asked.description,
                verb=self.verb,
                force=self.taken_as.force,
            )
        records = start.source.records[: start.count]
        if info.agent != start.source.info.agent or (records and info.base_digest != canonical.digest_of(records)):
            raise Conflict("The new session on the server begins differently.", "Try again.")
        if self.taken_as.track and (written is not None or not self.asked.pull):
            track_session(self.project, name, alias_of_session(info, written, kind=self.verb), begun)
        else:
            self.project.tracking.change(begun.removed_from)
        done = shared_result(self.verb, self.project, info, name if self.taken_as.track else None, written)
        return replace(done, created=True, moved=start.moved)

    def on_this_machine(self, start: _Beginning, written: WrittenLog, name: str) -> SharingResult:
        """Track a new branch or fork that is only on this machine until it is pushed."""
        info = start.source.info
        base = {
            "session_id": None,
            "parent_id": info.id,
            "base_count": start.count,
            "base_digest": canonical.digest_of(start.source.records[: start.count]),
            "visibility": self.asked.description.visibility or "private",
            "title": self.asked.description.title or info.title,
        }
        alias = alias_of_session(info, written, kind=self.verb).model_copy(update=base)
        if self.taken_as.track:
            track_session(self.project, name, alias)
        done = unshared_result(self.verb, self.project, name if self.taken_as.track else None, alias, info.agent)
        return replace(done, moved=start.moved, **written_fields(self.project, info, written))

    def offline(self, source_id: str) -> SharingResult:
        """Branch a tracked session by copying its local log, since the server does not answer.

        Raise `ServerUnavailable` if this machine does not know which records the server has.
        """
        tracked = self.project.tracking.read()
        one = next((one for one in tracked.aliases.values() if one.session_id == source_id and one.file), None)
        if one is None or one.file is None:
            raise _needs_server(self.project, "The session is not on this machine.")
        if self.taken_as.platform not in (None, one.platform):
            raise _needs_server(self.project, "--platform needs it.")
        name, title = self.name(source_id, None), self.asked.description.title or one.title
        with _copied_log(self.project, one, self.asked.at, title, self.taken_as) as branch:
            out = prepare(branch.path, branch.agent, self.project.place.root)
            said = {"title": title, "visibility": self.asked.description.visibility or "private"}
            alias = _alias_of_copy(self.project, one, branch, out).model_copy(update=said)
            if self.taken_as.track:
                track_session(self.project, name, alias)
            return replace(
                unshared_result("branch", self.project, name if self.taken_as.track else None, alias, branch.agent),
                resume_command=command_to_resume(branch.agent, branch.session_id, out.session.cwd),
                warnings=(
                    *branch.warnings,
                    f"{_away(self.project)} It lacks changes there since {one.last_pulled_at}.",
                ),
            )


def _needs_server(project: TeamProject, why: str) -> ServerUnavailable:
    """Return the error for a request that needs the server while it does not answer. `why` is a sentence."""
    return ServerUnavailable(f"{_away(project)} {why}", project.away.hint if project.away else "")


def _away(project: TeamProject) -> str:
    return project.away.message if project.away else ""


@contextmanager
def _copied_log(
    project: TeamProject, one: Alias, at: int | None, title: str, taken_as: PullOptions
) -> Iterator[SessionCopy]:
    """Yield a copy of the local log of `one` up to message `at`, or all of it. Delete it after an error."""
    session = project.logs.read(one.file or Path(), one.platform)
    end = exchange_end(session, at)[0]
    new, directory = AGENTS.starter_of(one.platform).new_id(), pull.directory_of(project, taken_as)
    with log_register.writing_copy(one.platform, new, project.place):
        moment = datetime.now()  # noqa: DTZ005 - files may be named by local time
        branch = write_copy(session, end, NewSession(new, directory, moment, title or str(session.title)))
        try:
            yield branch
        except BaseException:
            branch.undo()
            if (known := log_register.find(branch.path, branch.agent)) is not None:
                known.forget()
            raise


def _alias_of_copy(project: TeamProject, one: Alias, branch: SessionCopy, out: Outgoing) -> Alias:
    """Return the alias for `branch`, a copy of the local log of `one`.

    The records that the server had when it last answered count as pushed.
    """
    count = min(one.base_count, len(out.records))
    known = log_register.find(one.file or Path(), one.platform)
    digest = one.base_digest if count == one.base_count else known.digest(count) if known else ""
    if not count or canonical.digest_of(out.records[:count]) != digest:
        raise _needs_server(project, "Only the server knows the pushed records.")
    if known is not None:
        replace(known, path=branch.path, root=project.place.root, records=known.records[:count]).save()
    last = out.numbers[count - 1]
    base = {
        "base_count": count,
        "base_digest": digest,
        "files": (str(branch.path),),
        "last_pulled_at": timestamp(),
        "local_count": last,
        "local_digest": project.logs.records(out.session).digest(last),
    }
    return one.apart().model_copy(update=base)
