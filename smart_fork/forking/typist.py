"""Who types into a worker's terminal, and looks whether it has arrived."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from indexer.masking import mask_screen
from indexer.shapes import dataclass
from smart_fork.agents.questions import Question, Screen
from smart_fork.errors import ProgramFailed
from smart_fork.system.processes import Machine
from smart_fork.workers.place import Started, WorkerPlace

#: How long a screen may take to show what was typed.
SCREEN_SECONDS = 5.0
LOOK_SECONDS = 0.05
#: How often the same is typed, where a program does not take it.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Typist:
    """Types into the terminal of one worker."""

    place: WorkerPlace
    started: Started
    screen: Screen
    around: Machine

    def type(self, text: str) -> None:
        """Paste, and wait until it is there: an Enter that comes too soon may be taken as part of what is pasted.

        Raises:
            ForkRefused: see `WorkerPlace.paste`.
            ProgramFailed: it does not accept the typed text.
        """
        for _ in range(_TRIES):
            before = self.shown()
            self.place.paste(self.started, text, self.around.processes, self.around.env)
            if self.wait(partial(self._has_come, text, before), SCREEN_SECONDS):
                return
            if before is None or self.shown() != before:
                return  # as something that we do not know
        # A program that is just starting throws away what is typed.
        raise ProgramFailed(f"{self.started.worker_id} does not accept the typed text", f"See: {self.started.attach}")

    def send(self, text: str, done: Callable[[], bool], seconds: float) -> bool:
        """Press Enter, and once more where the text is still there; never into anything else."""
        for _ in range(_TRIES):
            self.press("Enter")
            if self.wait(done, seconds / _TRIES):
                return True
            if not self.holds(text):
                return self.wait(done, seconds)
        return False

    def press(self, key: str) -> None:
        """See `WorkerPlace.press`."""
        self.place.press(self.started, key, self.around.processes, self.around.env)

    def shown(self) -> str | None:
        """What is on the screen now."""
        return self.place.screen(self.started, self.around.processes, self.around.env)

    def asked(self) -> Question | None:
        """What the screen asks now."""
        return self.screen.question(mask_screen(self.shown() or ""))

    def holds(self, text: str) -> bool:
        """Whether `text` stands in the line to type in."""
        return self.screen.holds(self.shown() or "", text)

    def wait(self, look: Callable[[], bool], seconds: float) -> bool:
        """Whether what is looked for comes in so long."""
        deadline = self.around.clock.now() + seconds
        while not (found := look()) and self.around.clock.now() < deadline:
            self.around.clock.sleep(LOOK_SECONDS)
        return found

    def _has_come(self, text: str, before: str | None) -> bool:
        return self.shown() != before and self.holds(text)
