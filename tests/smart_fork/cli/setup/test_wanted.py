"""Optional parts of the setup: recall, and reading tools that run without asking."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smart_fork.agents import AGENTS
from smart_fork.agents.mcp_registration import UnsuitableError
from smart_fork.cli import setup as setup_command
from smart_fork.cli.setup import agent_hooks, installed_parts, tool_permission
from smart_fork.cli.setup.ledger import Ledger
from smart_fork.cli.setup.tool_permission import add_rules, missing, remove_rules
from smart_fork.doctor import Check
from smart_fork.hooks import hint_switch
from tests.smart_fork.cli.setup.settings_homes import everything, full
from tests.smart_fork.test_docs import assert_documented
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

WANTED = ("--recall", "--allow-reading")


def test_both_are_undone_to_the_byte(setup, settled):
    before = everything(settled)

    done = setup("--yes", *WANTED)

    assert 0 == done.code, done.err
    assert [True, True] == [hint_switch.is_on("claude"), hint_switch.is_on("codex")]
    rules = json.loads((settled / ".claude/settings.json").read_text())["permissions"]["allow"]
    assert {"mcp__smart-fork__find_sessions", "mcp__plugin_smart-fork_smart-fork__read_session"} <= set(rules)
    assert not [rule for rule in rules if rule.endswith(("smart_fork", "message_worker"))], "these act"
    assert (0, before) == (setup("--remove").code, everything(settled))
    assert not Ledger().path.exists()
    assert not (settled / ".smart-fork/recall").exists()


@pytest.mark.thorough
def test_they_are_undone_to_the_byte_in_whichever_order_they_came(setup, settled):
    before = everything(settled)

    setup("--yes", "--no-hooks", "--allow-reading")
    setup("--yes", *WANTED)
    setup("hooks", "--remove")
    setup("--yes", *WANTED)

    assert (0, before) == (setup("--remove").code, everything(settled))


@pytest.mark.thorough
def test_they_are_there_the_second_time(setup, settled):
    setup("--yes", *WANTED)
    before = everything(settled)

    again = setup(*WANTED)

    assert (0, before) == (again.code, everything(settled))
    assert "Everything is set up already" in again.out


def test_neither_is_set_up_unless_it_is_wanted(setup, world):
    full(world.home)
    setup("--yes")

    assert set() == {line.what for line in Ledger()} & {"recall", "reading"}
    assert not hint_switch.is_on("claude")
    assert "find_sessions" not in (world.home / ".claude/settings.json").read_text()


@pytest.mark.parametrize("part", thorough_except_first(["recall", "allow-reading"]))
def test_each_is_taken_back_by_one_command_that_asks_nothing(setup, world, part):
    full(world.home)
    setup("--yes")
    without = everything(world.home)
    setup("--yes", f"--{part}")

    back = setup(f"--no-{part}")

    assert (0, without) == (back.code, everything(world.home))
    assert "removed" in back.out
    assert "MCP server" not in back.out
    assert "Nothing of it was set up here" in setup(f"--no-{part}").out
    assert not hint_switch.is_on("claude")


def test_one_agent_alone_is_told(setup, world):
    full(world.home)
    setup("--yes", "--recall", "--agent", "claude")

    assert [True, False] == [hint_switch.is_on("claude"), hint_switch.is_on("codex")]


@pytest.mark.parametrize("words", [("--recall", "--no-hooks"), ("--recall", "--no-allow-reading")])
def test_what_does_not_go_together_is_refused(setup, settled, words):
    before = everything(settled)
    assert (2, before) == (setup("--yes", *words).code, everything(settled))


def test_an_agent_that_never_asks_needs_no_rule(setup, world):
    full(world.home)
    shown = setup("--dry-run", "--agent", "codex", "--allow-reading")

    assert "Codex does not ask before read-only tools" in " ".join(shown.out.split())
    assert () == AGENTS.registration_of("codex").permission_rules(tool_permission.tools())


def test_out_of_settings_that_have_changed_since_only_our_rules_are_taken(setup, world):
    full(world.home)
    setup("--yes", "--allow-reading")
    path = world.home / ".claude/settings.json"
    changed = json.loads(path.read_text())
    changed["permissions"]["allow"].append("Bash(make:*)")
    path.write_text(json.dumps(changed | {"model": "other"}, indent=1))

    removed = setup("--remove")

    left = json.loads(path.read_text())
    assert (["Bash(ls:*)", "Bash(make:*)"], "other") == (left["permissions"]["allow"], left["model"])
    assert "only smart-fork's rules were removed" in " ".join(removed.err.split())


def test_json_is_documented(setup, world):
    full(world.home)
    for step in json.loads(setup("--yes", "--json", *WANTED).out)["steps"]:
        assert_documented("steps", step)
    removed = json.loads(setup("--no-recall", "--json").out)
    assert_documented("setup --remove", removed)
    assert {"recall"} == {step["step"] for step in removed["steps"]}


def test_the_doctor_says_how_it_goes(setup, world):
    full(world.home)
    setup("--yes", "--recall")

    _, recall = Check.run("set-up", installed_parts.checks)

    assert ("recall", True) == (recall.name, recall.optional)
    assert "suggested a session in 0 of 0 new sessions; no service runs" in recall.detail
    assert "--no-recall" in recall.next_step


def test_the_doctor_says_which_of_it_is_gone(setup, world):
    full(world.home)
    setup("--yes", "--agent", "claude", *WANTED)
    assert next(iter(Check.run("set-up", installed_parts.checks))).ok
    for line in Ledger():
        if line.what == "recall":
            line.path.unlink()
        elif line.what == "reading":
            line.path.write_text("{}")

    (changed,) = Check.run("set-up", installed_parts.checks)

    assert {"recall is off", f"rules for read-only tools are missing in {agent_hooks.settings_file('claude')}"} < {
        *changed.detail.split("; ")
    }


RULES = ("mcp__a__b", 'odd "ü"', "x")
_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_lists = st.lists(st.sampled_from([*RULES, "other", "deny"]) | _anything, max_size=4)
_permissions = st.dictionaries(st.sampled_from(["deny", "ask", "ü"]), _anything, max_size=2).flatmap(
    lambda rest: st.just(rest) | _lists.map(lambda allow: rest | {"allow": allow} | rest)
)
_settings = st.dictionaries(st.text(), _anything, max_size=2).flatmap(
    lambda rest: (
        st.just({name: value for name, value in rest.items() if name != "permissions"})
        | _permissions.map(lambda permissions: {**rest, "permissions": permissions})
        | _permissions.map(lambda permissions: {"permissions": permissions} | rest | {"permissions": permissions})
    )
)
STYLES = [
    json.dumps,
    lambda value: json.dumps(value, indent=2) + "\n",
    lambda value: json.dumps(value, indent="\t", ensure_ascii=False),
    lambda value: json.dumps(value, separators=(" , ", " : ")).replace("{}", "{  }").replace("[]", "[  ]"),
]


@hypothesis_settings(deadline=None, max_examples=full_or_sample(150, 20))
@given(value=_settings, style=st.sampled_from(STYLES))
def test_rules_are_put_in_and_taken_out_to_the_byte(value, style):
    """The content of others in the settings does not matter."""
    before = style(value)

    made, added = add_rules(before, RULES)

    assert () == missing(made, RULES)
    others = [json.loads(text) | {"permissions": None} for text in (before, made)]
    assert others[0] == others[1]
    assert before == remove_rules(made, added)


@pytest.mark.parametrize("text", ["[]", "{", '{"permissions": 7}', '{"permissions": {"allow": "x"}}', '{"a":1,"a":2}'])
def test_settings_that_are_not_understood_get_no_rules(text):
    with pytest.raises(UnsuitableError):
        add_rules(text, RULES)


def test_our_modules_are_compiled_and_those_that_cannot_be_are_left(tmp_path, monkeypatch, capfd):
    package = tmp_path / "ours"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "broken.py").write_text("def")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(setup_command, "_PACKAGES", ("ours", "gone"))

    setup_command.compile_ahead()

    assert [f"__init__.{sys.implementation.cache_tag}.pyc"] == [one.name for one in (package / "__pycache__").iterdir()]
    assert ("", "") == tuple(capfd.readouterr())


@pytest.mark.usefixtures("settled")
def test_who_sets_up_has_our_modules_compiled(setup, tmp_path, monkeypatch):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(setup_command, "_PACKAGES", ("ours",))

    setup("--yes")

    assert (tmp_path / "ours/__pycache__").is_dir()
