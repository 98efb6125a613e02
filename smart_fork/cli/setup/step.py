"""A step of the setup's plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from indexer.lazy_compilation import dataclass
from smart_fork.cli.setup.ledger import Ledger
from smart_fork.cli.setup.setup_output import StepTold
from smart_fork.errors import SmartForkError

#: ``new`` is put where nothing is, ``changed`` replaces what is there, ``there`` is as it should be, ``left`` cannot or
#: must not be done.
StepState = Literal["new", "changed", "there", "left"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the setup's plan, such as registering the MCP server with one agent.

    People see its `name`, and `why` if it is not done. `act` does it and returns notes. If planning it failed,
    `failure` is the error.
    """

    what: str
    name: str
    where: str
    state: StepState
    agent: str = ""
    why: str = ""
    act: Callable[[Ledger], list[str]] = lambda _: []
    failure: SmartForkError | None = None

    def do(self, ledger: Ledger) -> list[str]:
        """Do the step, and return notes for the person.

        Raises:
            SmartForkError: the step cannot be done.
        """
        if self.failure:
            raise self.failure
        return self.act(ledger)

    @property
    def is_open(self) -> bool:
        """Return True if the step adds or changes something."""
        return self.state in ("new", "changed")

    def told(self) -> StepTold:
        """Return the step as a value for the JSON answer."""
        return StepTold(
            step=self.what, agent=self.agent, name=self.name, where=self.where, state=self.state, why=self.why
        )
