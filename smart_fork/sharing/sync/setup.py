"""The setup of synchronization: the remote and its key, and the repositories that take part."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace

from indexer.json_values import Value, value
from smart_fork.display_text import quoted
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.finding import project_places
from smart_fork.finding.request import current_project
from smart_fork.sharing.sync import manifest, sending
from smart_fork.sharing.sync.ref import Ref, checked


@value
class SyncedRepositories(Value):
    """The remote that this machine synchronizes with, and the directories of the repositories that take part."""

    remote: str
    directories: tuple[str, ...]


def set_up(remote: str, words: str | None, project: str | None) -> SyncedRepositories:
    """Set up synchronization with the key of another machine, or with a new key if the remote is empty.

    Raises:
        Usage: the address or the key is invalid, or this machine already has another address or key.
        WrongKey: the key does not decrypt the remote's sessions.
        ProgramFailed: the remote does not answer.
    """
    there, given = checked(remote), None if words is None else manifest.parse_key(words)
    if sending.is_set_up() and sending.sync_state().remote != there:
        raise Usage(
            f"This machine syncs with {sending.sync_state().remote} already.", "smart-fork sync leave ends that."
        )
    if given is not None and manifest.has_key() and manifest.own_key() != given:
        raise Usage("This machine has another key.", "smart-fork sync leave deletes it.")
    fetched = Ref(there).fetch()
    if blob := fetched.files.get(manifest.NAME):
        if given is None and not manifest.has_key():
            raise Usage(
                "The remote has synced sessions already.",
                "Print their key with `smart-fork sync key` on the other machine, and give it to `sync setup --key`.",
            )
        manifest.opened(Ref(there).read(blob), given or manifest.own_key())
    if not manifest.has_key():
        manifest.store_key(given or manifest.new_key())
    known = sending.sync_state() if sending.is_set_up() else sending.SyncState(there)
    return _kept(known, (*known.directories, _directory(project)))


def add(project: str | None) -> SyncedRepositories:
    """Let the sessions of a repository (by default the current one) take part in synchronization."""
    known = sending.sync_state()
    return _kept(known, (*known.directories, _directory(project)))


def remove(project: str | None) -> SyncedRepositories:
    """Stop synchronizing the sessions of a repository, by default the current one."""
    now, directory = sending.sync_state(), current_project(project).root
    if directory not in now.directories:
        raise NotFound(f"{directory} does not take part.", "Those that do: " + (", ".join(now.directories) or "none"))
    return _kept(now, (one for one in now.directories if one != directory))


def key_words() -> str:
    """Return this machine's key as text to type on another machine."""
    return manifest.own_key().words()


def leave() -> SyncedRepositories:
    """End synchronization on this machine: delete the key, the fetched data and the settings. Sessions stay."""
    now = sending.sync_state()
    sending.forget()
    manifest.delete_key()
    shutil.rmtree(manifest.folder(), ignore_errors=True)
    return SyncedRepositories(now.remote, now.directories)


def _directory(project: str | None) -> str:
    found = current_project(project)
    if not found.git:
        raise SmartForkError(
            f"{quoted(found.root)} is in no git repository.",
            "Only repositories take part: the other machine knows them by their history.",
        )
    project_places.note((found.root,))
    return found.root


def _kept(now: sending.SyncState, directories: Iterable[str]) -> SyncedRepositories:
    taking_part = tuple(dict.fromkeys(directories))
    replace(now, directories=taking_part).keep()
    return SyncedRepositories(now.remote, taking_part)
