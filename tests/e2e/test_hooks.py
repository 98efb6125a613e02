"""The real agents run our hooks: what they say of workers, and that they say nothing of anybody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexer.environment import WORKER_ID
from smart_fork.system.processes import Machine as OwnMachine
from smart_fork.workers.recovery import reconcile
from smart_fork.workers.registry import Registry, WorkerRecord
from tests.e2e.agents import SERVER, SMART_FORK, Machine, machine_in
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Call, Message, Protocol, Say
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import (
    CONVERSATION,
    EXCHANGES,
    INTENT,
    assert_forked,
    each_agent,
    heard,
    run_fork,
    unlike_any_other,
)
from tests.e2e.terminals import alive, wait_until
from tests.support.mcp_process import McpProcess

pytestmark = pytest.mark.e2e
NEXT = "Now do the same for the downloader"
#: Hooks of somebody else, as they were before ours.
THEIRS: dict[Protocol, str] = {
    "claude": '{"theme":"dark",\n  "hooks": { "Stop": [ {"hooks": [{"command": "touch ~/theirs-claude", "type": "command"}]} ]}}',
    "codex": '{\n\t"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch ~/theirs-codex"}]}]}\n}',
}


def settings_of(machine: Machine, agent: Protocol) -> Path:
    return machine.home / {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}[agent]


@pytest.fixture(scope="module")
def hooked(programs: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine with somebody else's hooks and, beside them, ours, which a person has trusted in Codex."""
    with machine_in(cache_folder(), programs) as fresh:
        machines.append(fresh)
        fresh.add_smart_fork()
        for agent, text in THEIRS.items():
            settings_of(fresh, agent).write_text(text)
        fresh.smart_fork("setup", "hooks")
        terminal = fresh.agent_interactive("codex")
        terminal.choose("Hooks need review", "2")
        wait_until(lambda: "trusted_hash" in (fresh.home / ".codex/config.toml").read_text(), "Codex to trust them")
        yield fresh


@pytest.fixture(scope="module")
def parent_of(hooked: Machine) -> Callable[[Protocol], Log]:
    kept: dict[Protocol, Log] = {}

    def find(agent: Protocol) -> Log:
        if agent not in kept:
            kept[agent] = hooked.session_of_before(agent, *EXCHANGES)
        return kept[agent]

    return find


@pytest.fixture(scope="module")
def registry(hooked: Machine) -> Iterator[Registry]:
    """The machine's own, which also keeps what it was told, one after the other."""
    with Registry(hooked.home / ".smart-fork" / "workers.db") as opened:
        opened._db.execute("CREATE TABLE told (id TEXT, state TEXT, status TEXT)")
        opened._db.execute(
            "CREATE TRIGGER tell AFTER UPDATE OF state, status ON workers"
            " BEGIN INSERT INTO told VALUES (new.id, new.state, new.status); END"
        )
        yield opened


def told(registry: Registry, worker: WorkerRecord) -> list[str]:
    """What its hooks have said of it, each once in a row, and how it ended."""
    rows = registry._db.execute("SELECT iif(state = 'running', status, state) FROM told WHERE id = ?", (worker.id,))
    said = [word for (word,) in rows if word]
    return [word for i, word in enumerate(said) if i == 0 or said[i - 1] != word]


def fork(machine: Machine, registry: Registry, parent: Log, place: str, prompt: str) -> WorkerRecord:
    return registry.get(run_fork(machine, parent, prompt, "--in", place)["worker_id"])


@each_agent(thorough="claude")
def test_a_worker_without_a_terminal_works_is_idle_and_ends(hooked, registry, parent_of, agent):
    """R-021, R-031."""
    worker = fork(hooked, registry, parent_of(agent), "process", unlike_any_other(NEXT))

    wait_until(lambda: told(registry, worker)[-1:] == ["ended"], "the worker to end")
    assert ["working", "idle", "ended"] == told(registry, worker)
    assert registry.get(worker.id).session_id == worker.session_id != parent_of(agent).session_id


@pytest.mark.thorough
@each_agent()
def test_a_worker_in_a_window_works_is_idle_and_goes_on_and_no_other_session_is_told_of(
    hooked, registry, parent_of, agent
):
    """R-007, R-025, R-026, R-031, R-042: those of Codex share the server in the background, and its environment, with it."""
    worker = fork(hooked, registry, parent_of(agent), "tmux", unlike_any_other(NEXT))
    wait_until(lambda: told(registry, worker) == ["working", "idle"], "the first answer")
    assert registry.get(worker.id).session_id == worker.session_id
    pending = registry.add(agent, source_session_id=parent_of(agent).session_id, place="tmux", cwd=hooked.project)
    persons_and_scripts_say_nothing(hooked, registry, agent, worker)
    registry.set_state(pending.id, "failed")

    hooked.terminal(worker.terminal_id).type("Go on")
    wait_until(lambda: told(registry, worker) == ["working", "idle"] * 2, "the second answer")
    assert worker.session_id == registry.get(worker.id).session_id

    if agent == "claude":
        hooked.terminal(worker.terminal_id).type("/clear")
        wait_until(lambda: registry.get(worker.id).session_id != worker.session_id, "another session")
        assert worker.id == registry.get(worker.session_id).id
    hooked.terminal(worker.terminal_id).type("/exit" if agent == "claude" else "/quit")
    wait_until(lambda: pane_is_dead(hooked, worker), "the agent to leave")
    reconcile(registry, OwnMachine(env=hooked.env))  # Codex does not say so
    assert ("ended", "") == (registry.get(worker.id).state, registry.get(worker.id).status)


def persons_and_scripts_say_nothing(
    machine: Machine, registry: Registry, agent: Protocol, worker: WorkerRecord
) -> None:
    """Their hooks run, and nothing is known of any worker that was not known before."""
    before = registry.workers()
    theirs = machine.home / f"theirs-{agent}"
    theirs.unlink(missing_ok=True)

    machine.session_of_a_person(agent, (unlike_any_other("Who are you?"), unlike_any_other("A person's session.")))
    script = ["-p"] if agent == "claude" else ["exec"]
    inherited = {WORKER_ID: worker.id}  # as by what a worker starts
    machine.run(machine.programs / agent, *script, "--", "Count the files", env=inherited)

    assert theirs.exists(), "hooks were run"
    assert before == registry.workers()


@pytest.mark.thorough
def test_a_worker_that_asks_for_permission_waits_and_says_for_what(hooked, registry, parent_of):
    prompt = unlike_any_other("List the sessions")
    hooked.model.when(prompt, Call(SERVER, "list_sessions", {}, Say("There are some.")))

    worker = fork(hooked, registry, parent_of("claude"), "tmux", prompt)

    wait_until(lambda: told(registry, worker) == ["working", "waiting"], "Claude to ask")
    assert "permission" in registry.get(worker.id).status_note
    hooked.terminal(worker.terminal_id).choose("list_sessions", "1")
    wait_until(lambda: told(registry, worker)[-1] == "idle", "the answer")
    assert "" == registry.get(worker.id).status_note
    close(hooked, registry, worker)


@pytest.mark.thorough
def test_after_kill_9_of_the_server_its_workers_are_what_they_were(hooked, registry, parent_of):
    """R-040, R-041, R-043, R-047."""
    prompts = [unlike_any_other(NEXT) for _ in range(2)]
    by: list[Protocol] = ["claude", "codex"]
    forked: list[Json] = []
    with McpProcess([*SMART_FORK, "mcp"], cwd=hooked.project, env=hooked.env) as server:
        for agent, prompt in zip(by, prompts, strict=True):
            wanted = {"fork_session_id": parent_of(agent).session_id, "prompt": prompt, "run_in": "tmux"}
            forked.append(server.call("smart_fork", intent=INTENT, agent_type=agent, **wanted)["forked_session"])
        workers = [registry.get(one["worker_id"]) for one in forked]
        wait_until(lambda: all(told(registry, one) == ["working", "idle"] for one in workers), "two answers")
        known, panes, logs = [facts(registry.get(one.id)) for one in workers], windows(hooked), all_logs(hooked)

        server.kill()
        for worker in workers:
            hooked.terminal(worker.terminal_id).type(f"And {worker.id}")
        wait_until(lambda: all(told(registry, one) == ["working", "idle"] * 2 for one in workers), "two more answers")
        server.start()
        server.call("list_sessions")

        assert ([], []) == reconcile(registry, OwnMachine(env=hooked.env))
        assert known == [facts(registry.get(one.id)) for one in workers]
        assert (panes, logs) == (windows(hooked), all_logs(hooked))
    for agent, prompt, one, worker in zip(by, prompts, forked, workers, strict=True):
        log = assert_forked(hooked, agent, parent_of(agent), one, prompt)
        again = f"And {worker.id}"
        said = [*CONVERSATION, Message("user", prompt), Message("assistant", f"Noted: {prompt[:60]}")]
        assert [*said, Message("user", again)] == heard(hooked, again).said
        assert 1 == sum(f"Noted: {again}" in json.dumps(record) for record in log.records if is_spoken(record))


@each_agent()
def test_taking_our_hooks_out_gives_back_the_settings_as_they_were(hooked, agent):
    """R-028. The last of these tests."""
    hooked.smart_fork("setup", "hooks", "--agent", agent, "--remove")
    assert THEIRS[agent] == settings_of(hooked, agent).read_text()


def close(machine: Machine, registry: Registry, worker: WorkerRecord) -> None:
    """End a worker and have that noted, so that no server notes it while the next test looks at the register."""
    assert worker.pid is not None
    machine.tmux("kill-pane", "-t", worker.terminal_id or "")
    wait_until(lambda: not alive(worker.pid or 0), "the worker to end")
    reconcile(registry, OwnMachine(env=machine.env))
    assert "ended" == registry.get(worker.id).state


def pane_is_dead(machine: Machine, worker: WorkerRecord) -> bool:
    return "1" == machine.tmux("display-message", "-p", "-t", worker.terminal_id or "", "#{pane_dead}").strip()


def windows(machine: Machine) -> set[str]:
    return set(machine.tmux("list-panes", "-a", "-F", "#{pane_id} #{pane_pid} #{window_name}").splitlines())


def all_logs(machine: Machine) -> set[Path]:
    return {log.path for agent in ("claude", "codex") for log in machine.logs(agent)}


def facts(worker: WorkerRecord) -> tuple[object, ...]:
    return worker.id, worker.session_id, worker.terminal_id, worker.pid, worker.started_at, worker.state


def is_spoken(record: Json) -> bool:
    """Codex writes each answer twice."""
    return record.get("type") in ("assistant", "response_item")
