"""A program in a terminal, used as a person uses it: who looks whether what was typed is there, and types it again if not.

Programs throw away what arrives while they start, or take an Enter that comes too soon as part of a paste.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

from smart_fork.questions import Question, holds, question_on

#: For everything: where all goes well it costs nothing, and a machine may be busy.
SECONDS = 120.0
#: How long a program may take to show what was typed, before it is typed again.
PATIENCE = 6.0
LOOK_SECONDS = 0.05

T = TypeVar("T")


def wait_until(look: Callable[[], T | None], what: str, seconds: float = SECONDS) -> T:
    """What `look` returns, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited in vain for {what}")
        time.sleep(LOOK_SECONDS)


def alive(pid: int) -> bool:
    """Whether a process runs (what has ended and is not yet waited for does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Terminal:
    """A program in a window of a tmux server, of which `tmux` runs the commands."""

    tmux: Callable[..., str]
    window: str
    pid: int

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-J", "-t", self.window, check=False)

    @property
    def running(self) -> bool:
        return alive(self.pid)

    @property
    def question(self) -> Question | None:
        return question_on(self.screen)

    def press(self, *keys: str, until: Callable[[], bool], while_: Callable[[], bool], what: str) -> None:
        """Press keys until it can be seen that they have arrived: again and again, but only `while_` they still fit."""
        deadline = time.monotonic() + SECONDS
        again = 0.0
        while not until():
            now = time.monotonic()
            if now > deadline:
                raise AssertionError(f"{what} in vain. The screen:\n{self.screen}")
            if now > again and while_():
                self.tmux("send-keys", "-t", self.window, *keys, check=False)
                again = now + PATIENCE
            time.sleep(LOOK_SECONDS)

    def type(self, line: str) -> None:
        """Type a line, see it, press Enter, and see that it is gone."""
        self.tmux("send-keys", "-t", self.window, "-l", "--", line)
        typed = lambda: holds(screen := self.screen, line) and line in screen  # noqa: E731
        try:
            wait_until(typed, "the line", PATIENCE)
        except AssertionError:  # all of it was thrown away, or its beginning
            rest = ("C-u", ";", "send-keys", "-t", self.window, "-l", "--", line)
            self.press(
                *rest, until=typed, while_=lambda: self.running and self.question is None, what=f"Typed {line!r}"
            )
        held = lambda: self.running and holds(self.screen, line)  # noqa: E731
        self.press("Enter", until=lambda: not held(), while_=held, what=f"Sent off {line!r}")

    def choose(self, words: str, option: str) -> None:
        """Wait for the question with these words, and choose one of its options."""
        asked = lambda: (found := self.question) is not None and words in found.text  # noqa: E731
        marked = lambda: asked() and (found := self.question) is not None and found.marked == option  # noqa: E731
        done = lambda: not asked()  # noqa: E731
        wait_until(asked, f"{words!r} to be asked")
        self.press(option, until=lambda: done() or marked(), while_=asked, what=f"Marked {option} of {words!r}")
        self.press("Enter", until=done, while_=marked, what=f"Chose {option} of {words!r}")

    def leave(self, command: str) -> None:
        """End the program as a person does, with a command of its own, and wait until it has ended."""
        self.type(command)
        wait_until(lambda: not self.running, "the program to end")
