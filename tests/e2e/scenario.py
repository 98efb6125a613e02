"""What the scenarios of forking share: the conversation that is forked, and what is true of every fork of it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from smart_fork.agents import AGENTS
from smart_fork.forking.confirmation import CONFIRM_SECONDS
from smart_fork.workers.registry import Registry
from tests.e2e.agents import SERVER, Machine
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Call, Message, Protocol, Request, Say
from tests.e2e.terminals import PROGRAM_SECONDS, wait_until

PROMPT = "Add retry with exponential backoff to the uploader in upload.py"
ANSWER = "The uploader now retries five times; each wait is twice as long as the one before."
MORE = "And what happens when the last attempt fails too?"
MORE_ANSWER = "Then the uploader raises UploadFailed with the last response."
EXCHANGES = ((PROMPT, ANSWER), (MORE, MORE_ANSWER))
#: What the model is sent of it, message by message.
BEGINNING = [Message("user", PROMPT), Message("assistant", ANSWER)]
CONVERSATION = [*BEGINNING, Message("user", MORE), Message("assistant", MORE_ANSWER)]
#: What a start says that has not seen the worker begin yet.
LATE = f"did not take the prompt within {CONFIRM_SECONDS:g} seconds"
INTENT = "retry with exponential backoff for the downloader, as the uploader has it"


def each_agent(thorough: Protocol | None = None) -> pytest.MarkDecorator:
    """A test of Claude Code and of Codex. What it says of one of them may be a further case of what others say."""
    marks = {one: [pytest.mark.thorough] if one == thorough else [] for one in ("claude", "codex")}
    return pytest.mark.parametrize("agent", [pytest.param(one, marks=given) for one, given in marks.items()])


def unlike_any_other(text: str) -> str:
    """The same with a word of its own, so that the request that it leads to can be told from all others."""
    return f"{text} ({uuid.uuid4().hex[:8]})"


def run_fork(machine: Machine, session: Log, prompt: str, *options: str) -> Json:
    """``smart-fork fork``, and what it says about the fork."""
    fork: Json = json.loads(machine.smart_fork("fork", session.session_id, *options, "--json", "--", prompt).stdout)
    return settled(machine, fork)


def settled(machine: Machine, worker: Json) -> Json:
    """What was said of a start, made whole: on a busy machine it does not wait for the log, and the rest is told later (R-024)."""
    late = [note for note in worker["warnings"] if LATE in note]
    key = "new_session_id" if "new_session_id" in worker else "session_id"

    def known() -> str | None:
        machine.python("-c", "from smart_fork.workers.recovery import recover; recover()")  # as each server does first
        with Registry(machine.home / ".smart-fork" / "workers.db") as registry:
            return registry.get(worker["worker_id"]).session_id

    if late:
        worker["warnings"] = [note for note in worker["warnings"] if note not in late]
        worker[key] = wait_until(known, f"the session of {worker['worker_id']}", pause=PROGRAM_SECONDS)
    return worker


def ask(
    machine: Machine, agent: Protocol, project: Path, *calls: tuple[str, Json], terminal: bool = False
) -> tuple[list[Json], Log]:
    """Have a real agent call our tools, one after the other. Their answers as the model gets them, and the agent's log."""
    question = unlike_any_other(f"Which session knows {INTENT}? Have it done there.")
    done = unlike_any_other("That is in good hands.")
    answer: Call | Say = Say(done)
    for tool, arguments in reversed(calls):
        answer = Call(SERVER, tool, arguments, answer)
    machine.model.when(question, answer)
    allowed = ("--allowedTools", f"mcp__{SERVER}") if agent == "claude" else ()
    if terminal:
        machine.agent_interactive(agent, *allowed, "--", question, cwd=project)
    else:
        machine.run(
            machine.programs / agent, {"claude": "-p", "codex": "exec"}[agent], *allowed, "--", question, cwd=project
        )
    tools = [tool for tool, _ in calls]

    def all_answered(request: Request) -> bool:
        return request.last_prompt == question and [one.tool for one in request.our_results] == tools

    heard = machine.model.wait_for(all_answered)
    caller = wait_until(lambda: machine.find_log(agent, done), "the caller's own log")
    return [one.structured for one in heard.our_results], caller


def assert_forked(
    machine: Machine,
    agent: Protocol,
    parent: Log,
    fork: dict[str, Any],
    prompt: str,
    *,
    said_before: list[Message] = CONVERSATION,
) -> Log:
    """The model was sent what the parent's was, and then the prompt; and the fork has a log that says where it is from."""
    settled(machine, fork)
    # Claude may write a record that says nothing behind an answer: a fork there begins after it, and says so. Who is of
    # another agent than the one that is started is told, too.
    known = ("Forked after message", "Its directory is gone", f"This starts {AGENTS.title_of(agent)}, not ")
    assert [] == [note for note in fork["warnings"] if not note.startswith(known)]
    assert [*said_before, Message("user", prompt)] == heard(machine, prompt).said
    assert parent.session_id == fork["resume_session_id"]
    log = machine.log(agent, fork["new_session_id"])
    if agent == "codex":
        assert log.meta["forked_from_id"] == parent.session_id
    else:
        spoken = [record["uuid"] for record in parent.chain if record["type"] in ("user", "assistant")]
        copied = set(spoken[: len(said_before)])
        wait_until(lambda: copied <= {record["uuid"] for record in log.chain}, "the parent's records in the fork")
    wait_until(lambda: log.answers("Noted: "), "the fork's answer in its log")
    return log


def heard(machine: Machine, prompt: str) -> Request:
    """The request that ends with exactly this prompt."""
    return machine.model.wait_for(lambda request: request.last_prompt == prompt)


def answers_from_the_cache(machine: Machine, prompt: str) -> None:
    """The model reads most of what it is sent with `prompt` from its cache, and says so."""
    machine.model.when(prompt, Say(f"Noted: {prompt[:60]}", 142_000, 1_100))


def first_answer(machine: Machine, fork: Json) -> Json:
    """What a worker's first answer took, when that is told."""

    def told() -> Json | None:
        found: Json | None = json.loads(machine.smart_fork("read", fork["worker_id"], "--json").stdout).get(
            "first_answer"
        )
        return found

    return wait_until(told, "what the first answer took", pause=PROGRAM_SECONDS)


def assert_in(log: Log, agent: Protocol, directory: Path, branch: str | None) -> None:
    """The session ran in that directory and on that branch; Codex cannot say it of a session that it only goes on with."""
    if agent == "codex":
        assert (str(directory), branch) == (log.meta["cwd"], log.meta.get("git", {}).get("branch"))
    else:
        assert (str(directory), branch) == (log.chain[-1]["cwd"], log.chain[-1]["gitBranch"])
