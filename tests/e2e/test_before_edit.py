"""The real agents put before their model what our hooks say of an edit, and of a compaction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.agents import SMART_FORK, Machine
from tests.e2e.model_server import Answer, Call, Protocol, Say
from tests.e2e.scenario import unlike_any_other
from tests.e2e.services import Service
from tests.e2e.terminals import wait_until
from tests.e2e.test_recall import agents, served, told

__all__ = ["served", "told"]
pytestmark = pytest.mark.e2e


def edit(agent: Protocol, file: Path, old: str, then: Answer) -> Answer:
    """The model replaces a line of a file by another."""
    if agent == "claude":
        given = {"file_path": str(file), "old_string": old, "new_string": "    return None\n"}
        return Call("", "Read", {"file_path": str(file)}, Call("", "Edit", given, then))
    patch = f"*** Begin Patch\n*** Update File: {file.name}\n@@\n-{old}+    return None\n*** End Patch\n"
    return Call("", "exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF"}, then)


@agents
def test_before_an_edit_the_model_is_told_once_which_exchange_wrote_the_lines(
    told: Machine, served: Service, agent: Protocol
):
    file, asked = told.project / f"{agent}.py", unlike_any_other("Write the song of the sparrow")
    first, second = (
        f"    return hum_the_tune_of_{agent}(sparrow, loudly)\n",
        f"    return whistle_it_for_{agent}(sparrow)\n",
    )
    text = f"def sing(sparrow, loudly=False):\n{first}\n\ndef whistle(sparrow):\n{second}"
    told.model.when(asked, Call("", "Write", {"file_path": str(file), "content": text}, Say("It is written.")))
    told.run(told.programs / "claude", "-p", "--allowedTools", "Write", "--", asked)
    told.run("git", "add", ".")
    told.run("git", "commit", "-q", "-m", "Song")
    told.run(*SMART_FORK, "find", "sparrow", "--include-automated", "--json")
    changed = unlike_any_other("Be silent")
    told.model.when(changed, edit(agent, file, first, edit(agent, file, second, Say("It is changed."))))

    how = ("-p", "--allowedTools", "Read,Edit", "--") if agent == "claude" else ("exec",)
    told.run(told.programs / agent, *how, changed)

    assert "None" in file.read_text()
    requests = [json.dumps(one.body) for one in told.model.requests if changed in json.dumps(one.body)]
    assert 1 == requests[-1].count("wrote these lines when it was asked"), "of two edits of lines of one exchange"
    assert asked in requests[-1]


def test_after_a_compaction_the_model_is_told_how_to_search_what_was_dropped(told: Machine, served: Service):
    first, more, last = map(unlike_any_other, ("What is the weather like?", "And tomorrow?", "Go on with it"))
    terminal = told.agent_interactive("claude", "--", first)
    wait_until(lambda: told.find_log("claude", f"Noted: {first[:60]}"), "the first answer")
    terminal.type(more)
    log = wait_until(lambda: told.find_log("claude", f"Noted: {more[:60]}"), "the second answer")
    terminal.type("/compact")
    wait_until(lambda: '"compact_boundary"' in log.path.read_text(), "the compaction")
    terminal.type(last)

    request = told.model.wait_for_prompt(last)

    assert "call find_sessions with session='self'" in json.dumps(request.body)
    terminal.leave("/exit")
