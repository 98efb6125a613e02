"""Codex notes which hooks a person trusts. Notes about smart-fork's hooks are removed with these hooks."""

from __future__ import annotations

from pathlib import Path

from smart_fork.agents import AGENTS
from smart_fork.cli.setup import agent_hooks
from tests.smart_fork.cli.setup.settings_homes import everything

CODEX = AGENTS.registration_of("codex")


def trust(path: Path, *places: str) -> str:
    """Return Codex's notes about hooks that a person trusts."""
    hashed = 'trusted_hash = "sha256:ca49a5b2"'
    return "\n[hooks.state]\n" + "".join(f'\n[hooks.state."{path}:{place}"]\n{hashed}\n' for place in places)


def test_undoing_it_takes_out_that_a_person_trusts_our_hooks_in_codex(setup, world):
    """Codex notes a trusted hook by its position in the file of hooks."""
    config, hooks = CODEX.path(), agent_hooks.settings_file("codex")
    hooks.parent.mkdir(parents=True)
    config.write_text('model = "gpt-5" # mine\n')
    before = everything(world.home)
    setup("--yes")
    with config.open("a") as file:
        file.write(trust(hooks, "session_start:0:0", "stop:0:0", "pre_tool_use:0:0"))

    setup("--remove")

    assert before == everything(world.home)


def test_that_a_person_trusts_others_hooks_stays(setup, world):
    config, hooks = CODEX.path(), agent_hooks.settings_file("codex")
    hooks.parent.mkdir(parents=True)
    hooks.write_text('{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]}}')
    config.write_text(trust(hooks, "stop:0:0") + trust(Path("/elsewhere/hooks.json"), "stop:1:0").partition("]\n")[2])
    before = everything(world.home)
    setup("--yes")
    with config.open("a") as file:
        file.write(trust(hooks, "stop:1:0", "user_prompt_submit:0:0").partition("]\n")[2] + "# mine\n")

    setup("--remove")

    config.write_text(config.read_text().replace("\n# mine\n", ""))
    assert before == everything(world.home)


def test_what_codex_trusts_is_left_where_its_settings_are_not_understood(setup, world):
    setup("--yes", "--agent", "codex")
    CODEX.path().write_text("[hooks.state\n")

    removed = setup("--remove")

    assert "[hooks.state\n" == CODEX.path().read_text()
    assert not agent_hooks.settings_file("codex").exists()
    assert removed.code == 1, "the server's table is still in it"
