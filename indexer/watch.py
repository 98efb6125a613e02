"""Noticing changes of logs as they happen, by the system's own notifications or, where those run out, by looking.

Every folder that logs are in is watched by itself, linked ones too: what agents keep below a session's own folder makes
no noise.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.files import folders_of

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

log = logging.getLogger(__name__)

#: How long notifications are collected before they are handed over, and how often that is looked at, in milliseconds.
COLLECT_MILLISECONDS, STEP_MILLISECONDS = 600, 200
#: A watched folder that was deleted and made again is noticed after at most so long.
CHECK_MILLISECONDS = 30_000
#: How often everything is looked at where the system cannot notify us; that costs one `stat` a log.
POLL_SECONDS = 10.0
#: After so long it is tried again to have the system notify us.
AGAIN_SECONDS = 600.0
#: Folders that come and go just now are looked for again after so long.
RETRY_SECONDS = 0.2

#: What `RustNotify` calls a path that went.
_DELETED = 3

#: Is told the paths that have changed, or `None`: look everywhere.
Changed = Callable[[Collection[str] | None], None]


class _Folder(NamedTuple):
    """A folder to be watched, and which one of that name it is."""

    path: str
    device: int
    inode: int


class Watcher:
    """Tells `changed` about logs that come, grow, go or are replaced. It reads no log."""

    def __init__(
        self, adapters: Iterable[AgentAdapter], changed: Changed, *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        every = list(adapters)
        self._roots = [root for agent in every for root in agent.folders()]
        self._endings = tuple({ending for agent in every for ending in agent.endings})
        self._changed = changed
        self._poll_seconds = poll_seconds

    def run(self, stop: Event) -> None:
        """Watch until `stop` is set; meant for a thread of its own. A failure is logged, and looking takes over."""
        said = ""
        while not stop.is_set():
            try:
                self._notified(stop)
            except FileNotFoundError:
                stop.wait(RETRY_SECONDS)  # a folder went while it was about to be watched
            except Exception as error:  # noqa: BLE001 - no watches left, a limit of the system, a library that fails
                level = logging.DEBUG if str(error) == said else logging.WARNING
                said, often = str(error), self._poll_seconds
                log.log(level, "changes cannot be watched (%s); the logs are checked every %g seconds", said, often)
                self._look(stop)

    def _look(self, stop: Event) -> None:
        """For a while: the limit may be another by then."""
        until = time.monotonic() + AGAIN_SECONDS
        while time.monotonic() < until and not stop.wait(self._poll_seconds):
            self._changed(None)

    def _notified(self, stop: Event) -> None:
        """Watch the folders that there are now; when those change, begin again without missing anything between."""
        folders = frozenset(self._folders())
        names = _names(folders)
        notify = _watching(folders)
        try:
            self._changed(None)  # what happened before the folders were watched
            while True:
                raw = notify.watch(COLLECT_MILLISECONDS, STEP_MILLISECONDS, CHECK_MILLISECONDS, stop)
                if raw in ("stop", "signal"):
                    return
                changes = raw if isinstance(raw, set) else set()
                paths = {path for _, path in changes}
                if logs := _logs(paths, names, self._endings):
                    self._changed(logs)
                if any(change == _DELETED and path in names for change, path in changes):
                    return  # made again immediately, it may have the same inode, and nobody watches it
                only_logs = bool(paths) and all(path.endswith(self._endings) for path in paths)
                if not only_logs and folders != frozenset(self._folders()):
                    return
        finally:
            notify.close()

    def _folders(self) -> Iterator[_Folder]:
        """Where logs are, and, for a folder that is not there, the nearest one above in which it will appear."""
        for root, depth in self._roots:
            there = next((folder for folder in (root, *root.parents) if folder.is_dir()), None)
            if there == root:
                yield from _below(str(root), depth)
            elif there is not None:
                yield from _below(str(there), 0)


def _names(folders: Collection[_Folder]) -> dict[str, str]:
    """The folders by what they may be called: some systems give names without symbolic links."""
    return {os.path.realpath(folder.path): folder.path for folder in folders} | {
        folder.path: folder.path for folder in folders
    }


def _logs(paths: set[str], names: Mapping[str, str], endings: tuple[str, ...]) -> set[str]:
    """The logs, and the files that logs are in, among `paths`, named as `discover` names them."""
    split = [path.rpartition("/") for path in paths if path.endswith(endings)]
    return {f"{names[folder]}/{name}" for folder, _, name in split if folder in names}


def _watching(folders: Collection[_Folder]) -> RustNotify:
    from watchfiles._rust_notify import RustNotify

    return RustNotify([folder.path for folder in folders], False, False, 300, False, False)  # noqa: FBT003 - its way


def _below(path: str, depth: int) -> Iterator[_Folder]:
    """A folder and those below in which logs are looked for; those that cannot be read are passed over."""
    for one in folders_of(path, depth):
        with suppress(OSError):
            info = os.stat(one)  # noqa: PTH116 - as text
            yield _Folder(one, info.st_dev, info.st_ino)
