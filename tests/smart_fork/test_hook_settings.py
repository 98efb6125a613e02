"""Our hooks in the settings of the agents, beside those of others."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smart_fork import agents as agents_folder
from smart_fork import json_edit
from smart_fork.agents import AGENTS, AllAgents
from smart_fork.agents.agent import Agent
from smart_fork.agents.hooks import Hooks
from smart_fork.cli.setup import agent_hooks
from smart_fork.errors import SmartForkError
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

FOREIGN = {
    "model": "opus",
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "guard"}]}],
        "Stop": [
            {"hooks": [{"type": "command", "command": "say done"}, {"type": "command", "command": "smart_fork.hooks"}]}
        ],
    },
    "env": {"KEY": "väl\u0000ue"},
}
#: Those who read their hooks from settings, and those with a file of ours.
HOOKS = {agent.name: agent.hooks for agent in AGENTS if agent.hooks}
agents = pytest.mark.parametrize("agent", [name for name, hooks in HOOKS.items() if hooks.events])


@pytest.fixture
def file(home: Path, request: pytest.FixtureRequest) -> Path:
    agent = request.node.callspec.params.get("agent", "claude") if hasattr(request.node, "callspec") else "claude"
    path = agent_hooks.settings_file(agent)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def commands(path: Path) -> dict[str, list[str]]:
    """All commands of each event, in order."""
    hooks = json.loads(path.read_text())["hooks"]
    return {event: [one["command"] for group in groups for one in group["hooks"]] for event, groups in hooks.items()}


@agents
def test_installing_adds_one_command_to_each_event_and_once_is_enough(file, agent):
    """R-028, R-029."""
    file.write_text(json.dumps(FOREIGN, indent=2))

    assert agent_hooks.install(agent).changed
    ours, found = agent_hooks.command(agent), commands(file)
    assert set(HOOKS[agent].events) == {event for event, words in found.items() if ours in words}
    told = [ours] if "Stop" in HOOKS[agent].events else []  # another agent calls it by another name
    assert (["guard"], ["say done", "smart_fork.hooks", *told]) == (found["PreToolUse"], found["Stop"])
    assert [sys.executable, "-I", "-m", "smart_fork.hooks", agent] == shlex.split(ours)[:5]
    once = file.read_bytes()
    assert not agent_hooks.install(agent).changed
    assert (once, True) == (file.read_bytes(), agent_hooks.is_installed(agent))


STYLES = [
    json.dumps,
    lambda value: json.dumps(value, indent=2) + "\n",
    lambda value: json.dumps(value, indent="\t", ensure_ascii=False),
    lambda value: json.dumps(value, indent=4, separators=(",", ":")).replace("\n", "\r\n"),
    lambda value: json.dumps(value, separators=(" , ", " : ")).replace("{}", "{  }").replace("[]", "[ ]"),
]
_commands = st.sampled_from(
    ["guard", "python -m smart_fork", "echo smart_fork.hooks", "smart-fork find hook", "'", 'say "}]"']
)
_handlers = st.fixed_dictionaries(
    {"type": st.just("command"), "command": _commands}, optional={"timeout": st.integers()}
)
_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_groups = st.lists(
    st.fixed_dictionaries({"hooks": st.lists(_handlers, max_size=2)}, optional={"matcher": st.text()}) | _anything,
    max_size=3,
)
_events = st.sampled_from(["Stop", "SessionStart", "PreToolUse", 'odd ü"\\', ""])
_settings = st.dictionaries(st.text(), _anything, max_size=3).flatmap(
    lambda rest: (
        st.just({name: value for name, value in rest.items() if name != "hooks"})
        | st.dictionaries(_events, _groups, max_size=4).map(lambda hooks: rest | {"hooks": hooks})
        | st.dictionaries(_events, _groups, max_size=4).map(lambda hooks: {"hooks": hooks} | rest | {"hooks": hooks})
    )
)


@hypothesis_settings(deadline=None, max_examples=full_or_sample(150, 20))
@given(value=_settings, style=st.sampled_from(STYLES))
@pytest.mark.slow
def test_installing_and_removing_gives_back_the_same_bytes(tmp_path_factory, value, style):
    """R-028: whatever others have in it."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("hooks")
        patch.setenv("CLAUDE_CONFIG_DIR", str(home))
        patch.setenv("SMART_FORK_HOME", str(home / "state"))
        file, before = home / "settings.json", style(value).encode()
        file.write_bytes(before)

        agent_hooks.install("claude")
        installed = json.loads(file.read_bytes())
        assert agent_hooks.is_installed("claude")
        value = json.loads(before)
        assert {k: v for k, v in value.items() if k != "hooks"} == {k: v for k, v in installed.items() if k != "hooks"}
        agent_hooks.remove("claude")

        assert before == file.read_bytes()


@agents
def test_what_was_not_there_is_gone_again(file, agent):
    agent_hooks.install(agent)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert agent_hooks.remove(agent).changed
    assert not file.exists()
    assert not agent_hooks.remove(agent).changed


def test_what_was_there_before_a_second_time_is_not_what_was_there_before_the_first(file):
    agent_hooks.install("claude")
    file.unlink()
    file.write_text("{}")  # by somebody else
    agent_hooks.install("claude")
    agent_hooks.remove("claude")
    assert "{}" == file.read_text()


def test_what_is_put_into_an_empty_place_is_indented_as_all_else_is():
    before = json.dumps({"model": "opus", "hooks": {}}, indent=4)

    after = json_edit.insert(before, ("hooks", "Stop"), {"command": "say done"})

    assert json.dumps({"model": "opus", "hooks": {"Stop": [{"command": "say done"}]}}, indent=4) == after


def test_what_another_program_changes_meanwhile_stays(file):
    """Only ours, and what is empty without it, is taken out."""
    file.write_text('{"hooks": {}}')
    agent_hooks.install("claude")
    changed = json.loads(file.read_text())
    changed["hooks"]["Stop"].insert(0, {"hooks": [{"type": "command", "command": "mine"}]})
    changed["hooks"]["SessionEnd"][0]["hooks"].append({"type": "command", "command": "mine too"})
    file.write_text(json.dumps(changed | {"model": "opus"}, indent=3))

    agent_hooks.remove("claude")

    left = json.loads(file.read_text())
    assert {"Stop": ["mine"], "SessionEnd": ["mine too"]} == commands(file)
    assert "opus" == left["model"]


def test_older_entries_of_ours_are_replaced_where_they_stand(file):
    """R-028."""
    older = [
        {"type": "command", "command": f"{old} claude"}
        for old in ("/old/python -m smart_fork.hooks", "smart-fork hook")
    ]
    mine = {"type": "command", "command": "mine"}
    file.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [older[0]]}, {"hooks": [mine, older[1]]}], "Odd": [{"hooks": older}]}})
    )

    agent_hooks.install("claude")

    found = commands(file)
    assert [agent_hooks.command("claude"), "mine"] == found["Stop"]
    assert "Odd" not in found


@agents
@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"a": 1} // mine', '/* mine */ {"a": 1}', '{"a": 1,}', '{"a":1,"a":2}', '{"hooks": []}',
     '{"hooks": {"Stop": {}}}', "[" * 100_000, '{"a": NaN'],
)  # fmt: skip
def test_what_is_not_understood_is_left_as_it_is(file, agent, text):
    """R-028."""
    file.write_text(text)
    before = (file.read_bytes(), file.stat().st_mtime_ns)

    for change in (agent_hooks.install, agent_hooks.remove):
        with pytest.raises(SmartForkError) as raised:
            change(agent)
        assert str(file) in raised.value.message
        assert "--print" in raised.value.hint
    assert before == (file.read_bytes(), file.stat().st_mtime_ns)
    assert [file] == [path for path in file.parent.iterdir() if path.is_file()]


def test_odd_words_of_others_are_theirs(file):
    """What no program could run, and half a character, are no reason to stop."""
    text = '{"hooks": {"Stop": [{"hooks": [{"command": "\\ud800 \'"}, {"command": 7}, 7]}, {"hooks": 7}, 7]}}'
    file.write_text(text)
    agent_hooks.install("claude")
    assert agent_hooks.is_installed("claude")
    agent_hooks.remove("claude")
    assert text == file.read_text()


def test_bytes_that_are_no_text_are_left_as_they_are(file):
    file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(SmartForkError):
        agent_hooks.install("claude")
    assert b'{"a": "\xff"}' == file.read_bytes()


def test_a_link_to_the_settings_stays_a_link_and_the_mode_stays(file, home):
    target = home / "dotfiles.json"
    target.write_text("{}")
    target.chmod(0o640)
    file.symlink_to(target)

    agent_hooks.install("claude")

    assert (True, 0o640) == (file.is_symlink(), stat.S_IMODE(target.stat().st_mode))
    assert agent_hooks.is_installed("claude")
    agent_hooks.remove("claude")
    assert (True, "{}") == (file.is_symlink(), target.read_text())


def test_settings_that_cannot_be_written_are_an_error(file):
    if os.geteuid() == 0:
        file.mkdir()  # root may write anywhere
    else:
        file.write_text("{}")
        file.parent.chmod(0o500)
    with pytest.raises(SmartForkError, match=r"cannot be (read|written)"):
        agent_hooks.install("claude")


def test_a_change_between_reading_and_writing_is_not_lost(file, monkeypatch):
    file.write_text("{}")
    append = json_edit.append

    def meanwhile(*words):
        file.write_text('{"model": "opus"}')
        return append(*words)

    monkeypatch.setattr(json_edit, "append", meanwhile)
    with pytest.raises(SmartForkError, match="changed by another program"):
        agent_hooks.install("claude")
    assert '{"model": "opus"}' == file.read_text()


@pytest.mark.parametrize("shell", thorough_except_first(["sh", "bash"]))
@agents
def test_a_hook_that_outlives_the_program_says_nothing_and_does_not_fail(shell, agent, monkeypatch, tmp_path):
    """After `pip uninstall` the Python is there without the module, or is gone itself."""
    for python in (sys.executable, str(tmp_path / "gone/python")):
        monkeypatch.setattr(sys, "executable", python)
        monkeypatch.setattr(agent_hooks, "MODULE", "smart_fork_is_gone")
        words = [shell, "-c", agent_hooks.command(agent)]
        done = subprocess.run(words, input=b"{}", capture_output=True, cwd=tmp_path, check=False)

        assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)


def test_a_file_that_its_owner_has_made_read_only_is_not_written(file):
    file.write_text("{}")
    file.chmod(0o444)
    with pytest.raises(SmartForkError, match="read-only"):
        agent_hooks.install("claude")
    assert "{}" == file.read_text()


class _Plugged(Hooks):
    """An agent that loads every file of a folder."""

    def path(self) -> Path:
        return Path.home() / ".plugged" / "plugins" / "smart-fork.js"

    def content(self, command):
        return f"// smart-fork\nconst command = {json.dumps(list(command))}\n"


class _Plugin(Agent):
    name, title = "plugged", "Plugged"
    facets = MappingProxyType({"hooks": f"{__name__}:_Plugged"})


@pytest.fixture
def plugin(home, monkeypatch) -> Path:
    monkeypatch.setattr("smart_fork.cli.setup.agent_hooks.AGENTS", AllAgents(*AGENTS, _Plugin()))
    return _Plugged(_Plugin()).path()


def test_a_file_of_ours_is_written_replaced_and_deleted(plugin):
    assert not agent_hooks.is_installed("plugged")
    assert agent_hooks.install("plugged").changed
    assert [sys.executable, "-I", "-m", "smart_fork.hooks", "plugged"] == json.loads(plugin.read_text().split("= ")[1])
    assert (False, True) == (agent_hooks.install("plugged").changed, agent_hooks.is_installed("plugged"))
    assert {"path": str(plugin), "content": plugin.read_text()} == agent_hooks.wanted("plugged")

    plugin.write_text("// smart-fork\nold")
    assert not agent_hooks.is_installed("plugged")
    assert agent_hooks.install("plugged").changed
    assert agent_hooks.is_installed("plugged")

    assert (True, False) == (agent_hooks.remove("plugged").changed, plugin.exists())
    assert not agent_hooks.remove("plugged").changed


def test_a_file_of_others_in_the_place_of_ours_stays(plugin):
    plugin.parent.mkdir(parents=True)
    plugin.write_text("// somebody's\n// smart-fork\n")

    for look in (agent_hooks.install, agent_hooks.is_installed):
        with pytest.raises(SmartForkError, match="is not smart-fork's"):
            look("plugged")
    assert not agent_hooks.remove("plugged").changed
    assert "// somebody's\n// smart-fork\n" == plugin.read_text()


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent.hooks], ids=lambda agent: agent.name)
def test_a_daemon_that_runs_hooks_is_a_module_of_its_agent(agent):
    """The hook looks whether there is such a file: it imports nothing."""
    may = any(agent.hooks.in_background(words) for words in (None, ("codex", "app-server"), ("x",)))

    assert may == (Path(agents_folder.__path__[0]) / agent.name / "daemon.py").is_file()


def test_what_keeps_codex_from_running_them_is_said(home):
    """R-029: its other settings are only read."""
    config = home / ".codex" / "config.toml"
    config.parent.mkdir()
    (trust,) = agent_hooks.install("codex").notes
    assert "once you trust them" in trust
    for text, note in (("[features]\nhooks = false # mine\n", "no hooks at all"), ("[features\n", "cannot be read")):
        config.write_text(text)
        assert note in agent_hooks.install("codex").notes[-1]
        assert text == config.read_text()
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    assert "disableAllHooks" in agent_hooks.install("claude").notes[0]
