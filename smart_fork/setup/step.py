"""One thing to set up: what it is, where, and whether anything has to be done about it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from indexer.files import sweep_beside
from indexer.shapes import dataclass
from smart_fork.agents.registration import UnsuitableError
from smart_fork.errors import SmartForkError
from smart_fork.setup.ledger import Ledger
from smart_fork.setup.setup_answer import StepTold

#: ``new`` is put where nothing is, ``changed`` replaces what is there, ``there`` is as it should be, ``left`` cannot or
#: must not be done.
State = Literal["new", "changed", "there", "left"]


@dataclass(frozen=True, slots=True)
class Step:
    """`name` is what people read, `why` what keeps a step from being done. `act` gives what a person should know."""

    what: str
    name: str
    where: str
    state: State
    agent: str = ""
    why: str = ""
    act: Callable[[Ledger], list[str]] = lambda _: []

    @property
    def is_open(self) -> bool:
        """Whether there is something to do."""
        return self.state in ("new", "changed")

    def told(self) -> StepTold:
        """The step as it is answered."""
        return StepTold(
            step=self.what, agent=self.agent, name=self.name, where=self.where, state=self.state, why=self.why
        )


@contextlib.contextmanager
def understood(path: Path, step: str) -> Iterator[None]:
    """Leave settings that are not understood as they are, and name the next `step`.

    Raises:
        SmartForkError: they are not.
    """
    try:
        yield
    except UnsuitableError as error:
        raise SmartForkError(f"{path} was not changed: {error}", step) from error


@contextlib.contextmanager
def switching(path: Path, how: str) -> Iterator[None]:
    """Name the file of a switch that cannot be "written" or "removed".

    Raises:
        SmartForkError: it cannot.
    """
    try:
        yield
    except OSError as error:
        raise SmartForkError(f"{path} cannot be {how}: {error.strerror}", "Check the owner of the folder.") from error


def take_away(path: Path, folders: list[Path]) -> None:
    """Remove what a killed writer has left beside `path`, and of `folders`, made for it, those that are empty."""
    sweep_beside(path.resolve())
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()
