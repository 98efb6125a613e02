"""The options of ``setup``, and the values of its JSON answers."""

from __future__ import annotations

from indexer.lazy import dataclass
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, record, value
from smart_fork.agents.log_retention import Deletion
from smart_fork.agents.options import said


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """The agents and the parts of the setup that a person has selected on the command line."""

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
    """An agent on this machine, in the JSON answer. `program` is null if only the agent's folder is here."""

    agent: str
    program: str | None
    home: str


@record
class StepTold(Value):
    """A step of the plan, in the JSON answer. A step that was done has `notes` or an `error`.

    `agent` is missing for a step that belongs to no agent, such as the service.
    """

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
    """The result of trying a registered server: seconds until its list of tools, and from a search to its answer.

    `asked` is the title of the newest session, `found` the title of the session in the answer. Both are empty without
    sessions.
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
    """The answer of ``setup``: the planned `steps`, and if they were done, the results in `ok`, `done` and `tried`.

    `deletes` lists agents that delete their logs.
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
    """A step that was undone, or has an `error`. `removed` is false if its file stays."""

    step: str
    agent: str = rare("")
    where: str
    removed: bool
    notes: tuple[str, ...]
    error: str = rare("")
    hint: str | None = rare()


@record
class TakenOut(Value):
    """The answer of ``setup --remove``: undone steps, `ended` processes, and parts `left` because a person installed
    them.
    """

    ok: bool
    changed: bool
    steps: tuple[StepUndone, ...]
    ended: tuple[str, ...] = ()
    left: tuple[str, ...]


@record
class HooksChanged(Value):
    """The change of the hooks in an agent's settings; with an `error` nothing was changed."""

    agent: str
    path: str
    changed: bool = False
    installed: bool = False
    notes: tuple[str, ...] = ()
    error: str = rare("")
    hint: str | None = rare()


@value
class HooksSet(Value):
    """The answer of ``setup hooks``: the change of each agent's hooks."""

    ok: bool
    agents: tuple[HooksChanged, ...]
