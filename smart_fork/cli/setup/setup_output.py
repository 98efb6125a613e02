"""The JSON answers of ``setup``."""

from __future__ import annotations

from indexer.json_values import Value, rare, record, value
from smart_fork.agents.log_retention import Deletion


@value
class AgentToSetUp(Value):
    """An agent in the answer of ``setup``. `program` is null if only its settings folder is here."""

    agent: str
    program: str | None
    home: str


@record
class StepTold(Value):
    """A step of the setup's plan in the answer. If it was done, it has `notes`; if it failed, an `error`."""

    step: str
    agent: str = rare("")
    name: str
    where: str
    state: str
    why: str = rare("")
    notes: tuple[str, ...] | None = rare()
    error: str = rare("")
    hint: str = rare("")


@value
class Trial(Value):
    """The result of trying the MCP server that is registered with `agent`.

    It listed its `tools` after `tools_seconds`, and answered a search after `answer_seconds`. The search was for
    `asked`, the title of the newest session; `found` is the title of the result. Both are empty if nothing was
    searched.
    """

    agent: str
    ok: bool
    tools: int = 0
    tools_seconds: float = 0.0
    asked: str = ""
    found: str = ""
    score: float = 0.0
    answer_seconds: float = 0.0
    error: str = ""


@record
class SetUp(Value):
    """The answer of ``setup``: the planned `steps`, and if they were done, the results.

    `done` has the result of each step, `tried` the trials of the MCP servers, and `ok` is true if all succeeded.
    `deletes` lists agents that delete their old logs.
    """

    program: str
    agents: tuple[AgentToSetUp, ...]
    steps: tuple[StepTold, ...]
    deletes: tuple[Deletion, ...] = ()
    changed: bool = False
    ok: bool | None = rare()
    done: tuple[StepTold, ...] | None = rare()
    tried: tuple[Trial, ...] | None = rare()


@record
class StepUndone(Value):
    """The result of undoing a step with ``setup --remove``, or the `error`. `removed` is false if its file stays."""

    step: str
    agent: str = rare("")
    where: str
    removed: bool
    notes: tuple[str, ...]
    error: str = rare("")
    hint: str | None = rare()


@record
class TakenOut(Value):
    """The answer of ``setup --remove``: the undone `steps`, and the names of processes that were `ended`.

    `left` has a sentence for each part that a person, not setup, installed.
    """

    ok: bool
    changed: bool
    steps: tuple[StepUndone, ...]
    ended: tuple[str, ...] = ()
    left: tuple[str, ...]


@record
class HooksChanged(Value):
    """The result of installing or removing one agent's hooks. With an `error`, nothing was changed."""

    agent: str
    path: str
    changed: bool = False
    installed: bool = False
    notes: tuple[str, ...] = ()
    error: str = rare("")
    hint: str | None = rare()


@value
class HooksSet(Value):
    """The answer of ``setup hooks``: the result for the hooks of each agent."""

    ok: bool
    agents: tuple[HooksChanged, ...]
