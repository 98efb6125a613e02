"""The entry in the settings of each agent: it is put in and taken out, and all other bytes stay."""

from __future__ import annotations

import json
import os
import sys
import tomllib

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.codex.settings import statements
from smart_fork.agents.mcp_registration import JsonRegistration, Registration, UnsuitableError
from smart_fork.errors import SmartForkError
from tests.support.cases import parametrize_subtests

PROGRAM = "/opt/tools/bin/smart-fork"
WORDS = (PROGRAM, "mcp")
CLAUDE, CODEX = AGENTS.registration_of("claude"), AGENTS.registration_of("codex")
JSON = [
    "{}",
    "{ }\n",
    '{"mcpServers":{}}',
    '{"a": [1,\n2],   "mcpServers"  : {"x": {"command": "x"}} , "z":"ü\\u00fc"}',
    json.dumps({"numStartups": 7, "mcpServers": {"other": {"command": "x", "args": []}}}, indent=2),
    json.dumps({"projects": {"/p": {"mcpServers": {"smart-fork": {}}}}}, indent="\t").replace("\n", "\r\n") + "\r\n",
]
TOML = [
    "",
    "# only a comment",
    'model = "gpt-5" # mine\n\n[mcp_servers.x]\ncommand = "x"\nenv = { A = "b" }   # inline\n',
    'model = "gpt-5"\r\n\r\n[features]\r\nhooks = true\r\n',
    'notify = [\n  "a", # one\n  "b",\n]\n[mcp_servers.x]\ncommand="x"',
    "x = \"\"\"\n[mcp_servers.smart-fork]\n\"\"\"\n[[profiles]]\nname = '''a\n[b]'''\n\n# the end\n",
    'mcp_servers.x.command = "x"\n',
    '["mcp_servers"."odd name"]\ncommand = "x"\n[mcp_servers.z.tools."a.b"]\napproval_mode = "approve"\n',
]
CASES = [
    (way, text.replace("mcpServers", way.servers) if isinstance(way, JsonRegistration) else text)
    for way in AGENTS.registrations()
    for text in (JSON if isinstance(way, JsonRegistration) else TOML)
]
both = pytest.mark.parametrize("way", AGENTS.registrations(), ids=lambda one: one.agent)


def read(way, text):
    return json.loads(text) if isinstance(way, JsonRegistration) else tomllib.loads(text)


@pytest.mark.parametrize(
    ("entry", "starts"),
    [
        ({"command": sys.executable, "args": ["-m", "smart_fork", "mcp"]}, True),
        ({"command": sys.executable, "args": ["-m", "smart_fork", "mcp"], "enabled": False}, False),
        ({"command": PROGRAM, "args": ["mcp"]}, False),
        ({"command": sys.executable, "args": ["another.py"]}, False),
        ({"url": "http://127.0.0.1:5111/mcp"}, False),
        (None, False),
    ],
)
def test_a_server_is_started_where_the_entry_is_ours_and_its_program_is_there(home, entry, starts):
    path = CODEX.path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CODEX.put("", entry) if entry else "not = [TOML")

    assert starts == CODEX.starts()


@parametrize_subtests(("way", "text"), CASES)
def test_an_entry_is_added_beside_all_others(way, text):
    entry = way.wanted(WORDS, {}, None)

    made = way.put(text, entry)

    assert entry == way.value(made)
    servers = way.servers if isinstance(way, JsonRegistration) else "mcp_servers"
    left = read(way, made)
    del left[servers]["smart-fork"]
    assert {servers: {}} | read(way, text) == left
    assert made == way.put(made, entry)


@parametrize_subtests(("way", "text"), CASES)
def test_without_the_entry_the_settings_say_what_they_said(way, text):
    made = way.put(text, way.wanted(WORDS, {}, None))

    assert read(way, text) == read(way, way.restore(made, None, had_servers=way.has_servers(text)))


@both
def test_an_entry_is_made_where_there_are_no_settings(way):
    entry = way.wanted(WORDS, {}, None)

    assert entry == way.value(way.put(None, entry))
    assert way.value(None) is None


def test_each_agent_waits_for_the_server_as_long_as_it_needs():
    assert {"command": PROGRAM, "args": ["mcp"], "alwaysLoad": True} == CLAUDE.wanted(WORDS, {}, None)
    assert {
        "command": PROGRAM,
        "args": ["mcp"],
        "startup_timeout_sec": 30,
        "tool_timeout_sec": 300,
    } == CODEX.wanted(WORDS, {}, None)


def test_what_a_person_has_chosen_for_it_stays():
    text = (
        '[mcp_servers.smart-fork] # mine\ncommand = "smart-fork"\nargs = [\n  "mcp", # all\n]\ntool_timeout_sec = 9\n'
    )
    text += '# why\n[mcp_servers.smart-fork.tools.find_sessions]\napproval_mode = "approve"\n\n# of x\n[x]\n'

    made = CODEX.put(text, CODEX.wanted(WORDS, {}, CODEX.value(text)))

    assert f'command = "{PROGRAM}"' in made
    assert "startup_timeout_sec = 30\n" in made
    for kept in ("# mine", '"mcp", # all', "tool_timeout_sec = 9\n# why\n", "approve", "\n\n# of x\n[x]\n"):
        assert kept in made
    text = (
        '{"mcpServers": {"smart-fork": {"env": {"A": "b"}, "command": "smart-fork", "args": [], "alwaysLoad": false}}}'
    )
    kept = CLAUDE.value(CLAUDE.put(text, CLAUDE.wanted(WORDS, {}, CLAUDE.value(text))))
    assert {"env": {"A": "b"}, "command": PROGRAM, "args": ["mcp"], "alwaysLoad": False} == kept


@both
def test_an_entry_that_was_replaced_comes_back_as_it_was_written(way):
    text = (
        f'{{"a":1,"{way.servers}":{{"smart-fork":{{"command" :"smart-fork","args":["mcp"]}}}}}}'
        if isinstance(way, JsonRegistration)
        else 'a = 1\n[mcp_servers.smart-fork]\ncommand="smart-fork" # mine\nargs=["mcp"]\n\n[b]\n'
    )
    former = way.raw(text)

    made = way.put(text, way.wanted(WORDS, {}, way.value(text)))

    assert text != made
    assert text == way.restore(made, former)


def test_what_codex_has_written_below_the_entry_goes_with_it():
    """A table for smart-fork without a command would keep Codex from starting."""
    made = CODEX.put("a = 1\n[b]\n", CODEX.wanted(WORDS, {}, None))
    made += '\n[mcp_servers.smart-fork.tools.find_sessions]\napproval_mode = "approve"\n\n[c]\n'

    assert {"a": 1, "b": {}, "c": {}} == tomllib.loads(CODEX.restore(made, None))


def test_codex_is_told_of_folders_that_only_the_environment_names():
    env = {"SMART_FORK_HOME": '/s "x"\\y\x7f', "CODEX_HOME": "", "OTHER": "x"}
    entry = CODEX.wanted(WORDS, env, None)

    assert {"SMART_FORK_HOME": env["SMART_FORK_HOME"]} == entry["env"]
    assert entry == CODEX.value(CODEX.put("", entry))


def test_codex_passes_on_little_and_claude_code_all_but_its_own_session():
    env = {"HOME": "/h", "PATH": "/b", "SECRET": "x", "CLAUDE_CODE_SESSION_ID": "1"}

    assert {"HOME": "/h", "PATH": "/b", "A": "b"} == CODEX.environment(env, {"env": {"A": "b"}})
    assert {"HOME": "/h", "PATH": "/b", "SECRET": "x", "CLAUDECODE": "1"} == CLAUDE.environment(env, {})


@parametrize_subtests(
    ("way", "text"),
    [
        (CLAUDE, ""),
        (CLAUDE, "[]"),
        (CLAUDE, '{"a": 1} // mine'),
        (CLAUDE, '{"mcpServers": []}'),
        (CLAUDE, '{"mcpServers": {"smart-fork": 1}}'),
        (CLAUDE, '{"mcpServers": {}, "mcpServers": {}}'),
        (CODEX, "a = "),
        (CODEX, "mcp_servers = 1"),
        (CODEX, 'mcp_servers = { x = { command = "x" } }'),
        (CODEX, "[mcp_servers]\nsmart-fork = 1"),
        (CODEX, '[mcp_servers]\nsmart-fork = { command = "smart-fork" }'),
        (CODEX, '[mcp_servers.smart-fork]\ncommand = "x"\n[a]\n[mcp_servers.smart-fork.env]\nA = "b"'),
    ],
)
def test_settings_that_cannot_be_edited_safely_are_refused(way, text):
    with pytest.raises(UnsuitableError):
        way.put(text, way.wanted(WORDS, {}, way.value(text)))


@parametrize_subtests("text", TOML)
def test_the_statements_of_a_toml_text_are_all_of_it(text):
    assert text == "".join(one.text for one in statements(text))


def test_a_server_at_an_address_or_of_another_program_is_not_ours():
    argv = AGENTS.registration_of("claude").argv
    assert Registration.is_ours(argv({"command": "smart-fork", "args": ["mcp"]}))
    assert Registration.is_ours(argv({"command": "/x/python", "args": ["-m", "smart_fork", "mcp"]}))
    assert Registration.is_ours(argv({"command": "uvx", "args": ["smart-fork", "mcp"]}))
    assert not Registration.is_ours(argv({"url": "http://127.0.0.1:8766/mcp"}))
    assert not Registration.is_ours(argv({"command": "docker", "args": ["run"]}))


def test_claude_codes_settings_are_where_it_reads_them(home, monkeypatch):
    assert home / ".claude.json" == CLAUDE.path()
    (home / ".claude").mkdir()
    (home / ".claude/.config.json").write_text("{}")
    assert home / ".claude/.config.json" == CLAUDE.path()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "c"))
    assert home / "c/.claude.json" == CLAUDE.path()


def test_claude_codes_lock_is_held_meanwhile_and_given_back(home):
    lock = home / ".claude.json.lock"
    with CLAUDE.lock():
        assert lock.is_dir()
    assert not lock.exists()


def test_a_lock_that_a_process_has_left_is_taken_over(home):
    lock = home / ".claude.json.lock"
    lock.mkdir()
    os.utime(lock, (1, 1))
    with CLAUDE.lock():
        pass
    assert not lock.exists()


def test_a_lock_that_is_held_is_not_broken(home, monkeypatch):
    lock = home / ".claude.json.lock"
    lock.mkdir()
    monkeypatch.setattr("smart_fork.agents.claude.settings._PATIENCE", -1.0)
    with pytest.raises(SmartForkError, match="is writing"), CLAUDE.lock():
        pass
    assert lock.is_dir()
