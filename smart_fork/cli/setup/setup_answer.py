"""Requests to setup, and its answers."""

from __future__ import annotations

from indexer.lazy import dataclass
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, record, value
from smart_fork.agents.log_retention import Deletion
from smart_fork.agents.options import said


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """The selected parts of the setup."""

    agents: tuple[AgentName, ...] = ()
    skill: bool = said(bool, default=True, help="Install no skill.", flags=("--no-skill",))
    hooks: bool = said(bool, default=True, help="Install no hooks.", flags=("--no-hooks",))
    index: bool = said(bool, default=True, help="Build no index.", flags=("--no-index",))
    service: bool = said(bool, default=True, help="Install no service.", flags=("--no-service",))
    recall: bool | None = said(
        bool, help="Tell sessions what past ones know: at first prompts, edits and errors.",
        flags=("--recall/--no-recall",),
    )  # fmt: skip
    reading: bool | None = said(
        bool, help="Let agents search and read without asking.", flags=("--allow-reading/--no-allow-reading",)
    )
    keep: bool | None = said(
        bool, help="Keep copies of logs that agents delete.", flags=("--keep-logs/--no-keep-logs",)
    )


@value
class AgentToSetUp(Value):
    """An agent that is here. `program` is null where only its folder is."""

    agent: str
    program: str | None
    home: str


@record
class StepTold(Value):
    """A step. `agent` is not there where it is the machine's; of one that was done there are `notes`, or an `error`."""

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
    """Result of a trial. Seconds are from the start to the list of tools, and from a question to its answer.

    `asked` is the title of the newest session, `found` the one that came back for it; both are empty without sessions.
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
    """The steps to do, and from `ok` on the results. `deletes` describes the agents' deletion of their own logs."""

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
    """A step that was undone; with an `error` it was not. It is not `removed` where its file stays."""

    step: str
    agent: str = rare("")
    where: str
    removed: bool
    notes: tuple[str, ...]
    error: str = rare("")
    hint: str | None = rare()


@record
class TakenOut(Value):
    """The undone steps, the `ended` processes, and parts `left` because they were installed by hand."""

    ok: bool
    changed: bool
    steps: tuple[StepUndone, ...]
    ended: tuple[str, ...] = ()
    left: tuple[str, ...]


@record
class HooksChanged(Value):
    """Changes of an agent's settings; with an `error` there are none."""

    agent: str
    path: str
    changed: bool = False
    installed: bool = False
    notes: tuple[str, ...] = ()
    error: str = rare("")
    hint: str | None = rare()


@value
class HooksSet(Value):
    """Changes for each agent."""

    ok: bool
    agents: tuple[HooksChanged, ...]
