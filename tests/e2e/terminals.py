"""A program in a terminal, used as a person uses it: who looks whether what was typed is there, and types it again if not.

Programs throw away what arrives while they start, or take an Enter that comes too soon as part of a paste.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

from smart_fork.agents.screen import Question, Screen
from tests.support.processes import is_running

#: For everything: where all goes well it costs nothing, and a machine may be busy.
SECONDS = 120.0
#: How long a program may take to show what was typed, before it is typed again.
PATIENCE = 6.0
LOOK_SECONDS = 0.1
#: The same where a look starts a program: it would keep what it waits for from the processor.
PROGRAM_SECONDS = 0.5

T = TypeVar("T")


def wait_until(look: Callable[[], T | None], what: str, seconds: float = SECONDS, pause: float = LOOK_SECONDS) -> T:
    """What `look` returns, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited in vain for {what}")
        time.sleep(pause)


def alive(pid: int) -> bool:
    """Whether a process runs (what has ended and is not yet waited for does not)."""
    try:
        return is_running(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


@dataclass
class Terminal:
    """A program in a window of a tmux server, of which `tmux` runs the commands."""

    tmux: Callable[..., str]
    window: str
    pid: int
    patience: float = PATIENCE

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-J", "-t", self.window, check=False)

    @property
    def running(self) -> bool:
        return alive(self.pid)

    def type(self, line: str) -> None:
        """Type a line, see it, press Enter, and see that it is gone."""

        def typed() -> bool:
            screen = self.screen
            return Screen().holds(screen, line) and line in screen

        def free() -> bool:
            screen = self.screen
            return Screen().hears(screen) and Screen().question(screen) is None

        def held() -> bool:
            return self.running and Screen().holds(self.screen, line)

        def gone() -> bool:
            return not held()

        wait_until(free, "a line to type in")  # before, the terminal itself shows what is typed, and nobody reads it
        self._keys("-l", "--", line)
        if not self._soon(typed):  # all of it was thrown away, or its beginning
            again = ("C-u", ";", "send-keys", "-t", self.window, "-l", "--", line)
            self._press(*again, until=typed, fits=free, what=f"type {line!r}")
        self._press("Enter", until=gone, fits=held, what=f"send off {line!r}")

    def choose(self, words: str, option: str) -> None:
        """Wait for the question with these words, and choose one of its options."""

        def asked() -> Question | None:
            found = Screen().question(self.screen)
            return found if found and words in found.text else None

        def marked() -> bool:
            found = asked()
            return found is not None and found.marked == option

        wait_until(asked, f"{words!r} to be asked")
        self._press(
            option,
            until=lambda: asked() is None or marked(),
            fits=lambda: asked() is not None,
            what=f"mark {option} of {words!r}",
        )
        self._press("Enter", until=lambda: asked() is None, fits=marked, what=f"choose {option} of {words!r}")

    def leave(self, command: str) -> None:
        """End the program as a person does, with a command of its own, and wait until it has ended.

        Claude Code 2.1.332 asks what becomes of the tasks in the background.
        """
        self.type(command)
        wait_until(lambda: not self.running or Screen().question(self.screen), "the program to end")
        if self.running and "Background work is running" in self.screen:
            self.choose("Background work is running", "1")
        wait_until(lambda: not self.running, "the program to end")

    def _keys(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", self.window, *keys)

    def _soon(self, look: Callable[[], bool]) -> bool:
        try:
            return wait_until(look, "it", self.patience)
        except AssertionError:
            return False

    def _press(self, *keys: str, until: Callable[[], bool], fits: Callable[[], bool], what: str) -> None:
        """Press keys until it can be seen that they have arrived: again and again, but never where they do not fit."""
        deadline = time.monotonic() + SECONDS
        while not until():
            if fits():
                self._keys(*keys)
            if not self._soon(until) and time.monotonic() > deadline:
                raise AssertionError(f"Could not {what}. The screen:\n{self.screen}")
