"""A tab of iTerm2, through its Python API (the extra ``iterm2``; macOS only).

iTerm2 takes a command as one line that it splits itself, and no environment. So what it is given is a line of our own
words only, and what it is to run goes through a private file.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import Any, TypeVar

from indexer.lazy import dataclass
from indexer.masking import Masked, mask
from smart_fork.agents.starter import Delivery, ForkPlan
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed
from smart_fork.snippets import plain_name
from smart_fork.system.processes import Processes
from smart_fork.workers.place import KEYS, Started, WorkerPlace, hand_over, require_ours, seems_gone
from smart_fork.workers.registry import WorkerRecord

INSTALL = "On macOS: install smart-fork[iterm2], and allow iTerm2's Python API in its settings."
#: Around what is pasted; the agents ask their terminal for it.
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab to open: `title` is shown, `hands_over` is what the tab's command will become."""

    title: str
    hands_over: Mapping[str, Any]


def plan_tab(plan: ForkPlan, worker: WorkerRecord, env: Mapping[str, str]) -> Tab:
    """The tab for a plan. Pure."""
    return Tab(plain_name(worker.name), {"argv": list(plan.argv), "cwd": str(plan.cwd), "env": dict(env)})


class ITerm2Place(WorkerPlace):
    """Runs the agent as a person would, in a tab of the window that is in front."""

    name = "iterm2"
    delivers = frozenset[Delivery]({"argument", "typed"})

    def available(self, processes: Processes, env: Mapping[str, str]) -> bool:
        """On macOS with the extra installed."""
        return sys.platform == "darwin" and find_spec("iterm2") is not None

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        if not plan.cwd.is_dir():
            raise NotFound(f"No such directory: {plan.cwd}")
        tab = plan_tab(plan, worker, env)
        command = shlex.join(hand_over(worker, tab.hands_over))

        async def open_tab(app: Any, connection: Any) -> tuple[str, int | None]:
            import iterm2

            window = app.current_terminal_window
            if window is None:
                window = await iterm2.Window.async_create(connection, command=command)
                session = window.current_tab.current_session
            else:
                session = (await window.async_create_tab(command=command)).current_session
            await session.async_set_name(tab.title)
            return session.session_id, int(await session.async_get_variable("pid") or 0) or None

        session_id, pid = _in_iterm2(open_tab)
        return Started(terminal_id=session_id, pid=pid, attach=f"iTerm2, tab “{tab.title}”", worker_id=worker.id)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
        """See `WorkerPlace.ended`. The tab closes with what runs in it."""
        return mask("Its tab was closed.") if seems_gone(started, processes) else None

    def screen(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str | None:

        async def read(app: Any, _connection: Any) -> str | None:
            session = app.get_session_by_id(started.terminal_id)
            if session is None:
                return None
            contents = await session.async_get_screen_contents()
            return "\n".join(contents.line(i).string for i in range(contents.number_of_lines))

        return _in_iterm2(read)

    def paste(self, started: Started, text: str, processes: Processes, env: Mapping[str, str]) -> None:
        require_ours(started, processes)
        self._send(started, f"{PASTE_BEGINS}{text}{PASTE_ENDS}")

    def press(self, started: Started, key: str, processes: Processes, env: Mapping[str, str]) -> None:
        if key not in KEYS:
            raise ForkRefused(f"Unknown key: {key!r}")
        require_ours(started, processes)
        self._send(started, {"Enter": "\r", "Up": "\x1b[A", "Down": "\x1b[B"}.get(key, key))

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        require_ours(started, processes)

        async def close_tab(app: Any, _connection: Any) -> None:
            if session := app.get_session_by_id(started.terminal_id):
                await session.async_close(force=True)

        _in_iterm2(close_tab)

    def _send(self, started: Started, text: str) -> None:
        async def send(app: Any, _connection: Any) -> bool:
            session = app.get_session_by_id(started.terminal_id)
            if session is not None:
                await session.async_send_text(text, suppress_broadcast=True)
            return session is not None

        if not _in_iterm2(send):
            raise ForkRefused("Its tab was closed")


def _in_iterm2(work: Callable[[Any, Any], Awaitable[T]]) -> T:
    """Return the result of `work`, done with iTerm2's application and a connection to it."""
    import iterm2

    async def main(connection: Any) -> T:
        return await work(await iterm2.async_get_app(connection), connection)

    try:
        result: T = iterm2.run_until_complete(main)
    except Exception as error:  # its own, those of its connection and of its protocol
        raise ProgramFailed(f"iTerm2 failed: {error}", INSTALL) from error
    return result
