"""The verbs of a person: setting a machine up, which repositories take part, and withdrawing."""

from __future__ import annotations

import shutil

from indexer.values import Value, value
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.finding import sessions
from smart_fork.finding.request import current_project
from smart_fork.repository.history import note
from smart_fork.sharing.sync import manifest as lists
from smart_fork.sharing.sync.ref import Ref, checked
from smart_fork.sharing.sync.run import Synced, sync, withdraw_session
from smart_fork.sharing.sync.sending import Progress, Settled, copies, forget, is_settled, settled, source_id
from smart_fork.snippets import quoted


@value
class TakingPart(Value):
    """The remote, and the directories of the repositories that take part."""

    remote: str
    directories: tuple[str, ...]


def set_up(remote: str, words: str | None, project: str | None) -> TakingPart:
    """Set this machine up: with the key of another one, or with a new one where the remote has nothing yet.

    Raises:
        Usage: the address or the key is none, or the machine has another.
        WrongKey: the remote has sessions that this key does not open.
        ProgramFailed: the remote does not answer.
    """
    there, given = checked(remote), None if words is None else lists.read(words)
    if is_settled() and settled().remote != there:
        raise Usage(f"This machine syncs with {settled().remote} already.", "smart-fork sync leave ends that.")
    if given is not None and lists.is_known() and lists.known() != given:
        raise Usage("This machine has another key.", "smart-fork sync leave deletes it.")
    fetched = Ref(there).fetch()
    if blob := fetched.files.get(lists.NAME):
        if given is None and not lists.is_known():
            raise Usage(
                "The remote has synced sessions already.",
                "Print their key with `smart-fork sync key` on the other machine, and give it to `sync setup --key`.",
            )
        lists.opened(Ref(there).read(blob), given or lists.known())
    if not lists.is_known():
        lists.keep(given or lists.made())
    known = settled() if is_settled() else Settled(there)
    return _kept(known.with_directory(_directory(project)))


def add(project: str | None) -> TakingPart:
    """Let a repository take part.

    Raises:
        NotFound: this machine is not set up.
    """
    return _kept(settled().with_directory(_directory(project)))


def remove(project: str | None) -> TakingPart:
    """Let a repository take part no longer.

    Raises:
        NotFound: this machine is not set up, or the repository does not take part.
    """
    now, directory = settled(), current_project(project).root
    if directory not in now.directories:
        raise NotFound(f"{directory} does not take part.", "Those that do: " + (", ".join(now.directories) or "none"))
    return _kept(now.without(directory))


def leave() -> TakingPart:
    """Delete the key, what was fetched, and what is settled; sessions stay where they are.

    Raises:
        NotFound: this machine is not set up.
    """
    now = settled()
    forget()
    lists.forget()
    shutil.rmtree(lists.folder(), ignore_errors=True)
    return TakingPart(now.remote, now.directories)


def withdraw(reference: str, *, progress: Progress | None = None) -> Synced:
    """Withdraw a session everywhere, and synchronize.

    Raises:
        NotFound: there is no such session, or this machine is not set up.
    """
    settled()
    one = sessions.locate(reference)
    copy = copies().get(one.session_id)
    withdraw_session(copy.source if copy else source_id(lists.known(), one.agent, one.session_id))
    return sync(progress=progress)


def _directory(project: str | None) -> str:
    found = current_project(project)
    if not found.git:
        raise SmartForkError(
            f"{quoted(found.root)} is in no git repository.",
            "Only repositories take part: the other machine knows them by their history.",
        )
    note((found.root,))
    return found.root


def _kept(now: Settled) -> TakingPart:
    now.keep()
    return TakingPart(now.remote, now.directories)
