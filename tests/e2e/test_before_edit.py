"""The real agents put before their model what our hooks say of an edit, and of a compaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import Machine, machine_in
from tests.e2e.model_server import Answer, Call, Calls, Protocol, Say
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import each_agent, unlike_any_other
from tests.e2e.services import Service, service_on
from tests.e2e.terminals import wait_until
from tests.e2e.test_copilot import unpacked_in, variables

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine-with-recall")]


def edit(agent: Protocol, file: Path, old: str, then: Answer) -> Answer:
    """The model replaces a line of a file by another."""
    if agent == "claude":
        given = {"file_path": str(file), "old_string": old, "new_string": "    return None\n"}
        return Call("", "Read", {"file_path": str(file)}, Call("", "Edit", given, then))
    patch = f"*** Begin Patch\n*** Update File: {file.name}\n@@\n-{old}+    return None\n*** End Patch\n"
    return Call("", "exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF"}, then)


@each_agent(thorough="codex")
def test_before_an_edit_the_model_is_told_once_which_exchange_wrote_the_lines(
    told: Machine, recall: Service, agent: Protocol
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
    told.smart_fork("find", "sparrow", "--include-automated", "--json")
    changed = unlike_any_other("Be silent")
    told.model.when(changed, edit(agent, file, first, edit(agent, file, second, Say("It is changed."))))

    how = ("-p", "--allowedTools", "Read,Edit", "--") if agent == "claude" else ("exec",)
    told.run(told.programs / agent, *how, changed)

    assert "None" in file.read_text()
    requests = [json.dumps(one.body) for one in told.model.requests if changed in json.dumps(one.body)]
    assert 1 == requests[-1].count("wrote these lines when it was asked"), "of two edits of lines of one exchange"
    assert asked in requests[-1]


@pytest.fixture
def copilot(copilot_program: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine with Copilot CLI alone, which has settings of a person and recall."""
    with machine_in(cache_folder(), copilot_program) as machine:
        machines.append(machine)
        machine.env |= variables(machine.model.url) | {"SMART_FORK_RECALL_MS": "60000"}
        unpacked_in(machine.home)
        (folder := machine.home / ".copilot").mkdir()
        (folder / "config.json").write_text(json.dumps({"trustedFolders": [str(machine.home)]}))
        (folder / "settings.json").write_text('{\n  "banner": "never"\n}\n')
        machine.set_up("copilot", "--recall")
        yield machine


@pytest.mark.thorough
def test_copilot_cli_is_told_before_an_edit_until_it_is_removed(copilot: Machine):
    settings = copilot.home / ".copilot/settings.json"
    settings.write_text(settings.read_text().replace('"timeout": 3', '"timeout": 100'))
    file, asked = copilot.project / "song.py", unlike_any_other("Write the song of the wren")
    first, second = "    return hum_the_tune_of_it(wren, loudly)", "    return whistle_it_softly_for_it(wren)"
    text = f"def sing(wren, loudly=False):\n{first}\n\n\ndef whistle(wren):\n{second}\n"
    copilot.model.when(asked, Call("", "create", {"path": str(file), "file_text": text}, Say("It is written.")))
    changed, words = unlike_any_other("Be silent"), (copilot.programs / "copilot", "--allow-all-tools")
    both = [{"path": str(file), "old_str": old, "new_str": "    return None"} for old in (first, second)]
    copilot.model.when(changed, Calls(tuple(Call("", "edit", one, Say("")) for one in both), Say("It is changed.")))
    with service_on(copilot):
        copilot.run(*words, f"--prompt={asked}")
        copilot.run("git", "add", ".")
        copilot.run("git", "commit", "-q", "-m", "Song")
        copilot.smart_fork("find", "wren", "--include-automated", "--json")
        copilot.run(*words, f"--prompt={changed}")
        found = json.loads(copilot.smart_fork("list", "--include-automated", "--json").stdout)

    assert 2 == file.read_text().count("return None")
    request = json.dumps(copilot.model.requests[-1].body)
    assert 1 == request.count("wrote these lines when it was asked"), "of the edits of lines of one exchange"
    assert asked in request
    assert "wrote these lines" not in json.dumps(found), "what a hook says is no prompt"
    copilot.smart_fork("setup", "--remove", "--yes")
    assert '{\n  "banner": "never"\n}\n' == settings.read_text()


@pytest.mark.thorough  # without an agent: tests of the service
@pytest.mark.parametrize(("agent", "mark"), [("claude", '"compact_boundary"'), ("codex", '"compacted"')])
def test_after_a_compaction_the_model_is_told_how_to_search_what_was_dropped(
    told: Machine, recall: Service, agent: Protocol, mark: str
):
    first, more, last = map(unlike_any_other, ("What is the weather like?", "And tomorrow?", "Go on with it"))
    terminal = told.agent_interactive(agent, "--", first)
    wait_until(lambda: told.find_log(agent, f"Noted: {first[:60]}"), "the first answer")
    terminal.type(more)
    log = wait_until(lambda: told.find_log(agent, f"Noted: {more[:60]}"), "the second answer")
    wait_until(lambda: agent == "claude" or '"task_complete"' in log.path.read_text().splitlines()[-1], "its end")
    terminal.type("/compact")
    wait_until(lambda: mark in log.path.read_text(), "the compaction")
    terminal.type(last)

    request = told.model.wait_for_prompt(last)

    assert "call find_sessions with session='self'" in json.dumps(request.body)
    terminal.leave("/exit")
