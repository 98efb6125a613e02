"""Parts of the setup: a file that cannot be read or written fails only its own part."""

from __future__ import annotations

from codecs import BOM_UTF8

import pytest

from smart_fork.agents import AGENTS
from smart_fork.cli.setup import agent_hooks
from tests.smart_fork.cli.setup.settings_homes import everything, full
from tests.support.cases import thorough_except_first

CLAUDE, CODEX = AGENTS.registration_of("claude"), AGENTS.registration_of("codex")


@pytest.mark.parametrize(
    ("name", "text"),
    thorough_except_first(
        [
            (".claude.json", '{"mcpServers": {'),
            (".claude.json", '{"a": 1} // mine'),
            (".claude/settings.json", '{\n  // mine\n  "hooks": {}\n}'),
            (".codex/config.toml", "[mcp_servers\n"),
            (".codex/config.toml", 'mcp_servers = { x = { command = "x" } }'),
            (".codex/hooks.json", "[]"),
        ]
    ),
)
def test_settings_that_are_not_understood_cost_their_own_part_and_no_other(setup, world, name, text):
    full(world.home)
    (world.home / name).write_text(text)
    before = everything(world.home)
    of_server = name in (".claude.json", ".codex/config.toml")

    failed = setup("--yes")

    assert 1 == failed.code
    assert name in failed.err
    assert "Correct" in failed.err
    assert before[name] == everything(world.home)[name]
    broken = {"claude" if "claude" in name else "codex"}
    for way in (CLAUDE, CODEX):
        server, hooks = way.agent in broken and of_server, way.agent in broken and not of_server
        assert server or way.value(way.path().read_text())["args"][-1] == "mcp"
        assert hooks or agent_hooks.is_installed(way.agent)
        assert (way.skills() / "past-sessions/SKILL.md").is_file()
    assert 0 == setup("--remove").code
    assert before == everything(world.home)


@pytest.mark.parametrize("kind", ["read-only", "a link to itself"])
def test_a_file_that_cannot_be_written_costs_its_own_part_and_no_other(setup, world, kind):
    full(world.home)
    settings = world.home / ".codex/config.toml"
    if kind == "read-only":
        settings.chmod(0o444)
    else:
        settings.unlink()
        settings.symlink_to(settings.name)
    before = settings.readlink() if settings.is_symlink() else settings.read_bytes()

    failed = setup("--yes")

    assert 1 == failed.code
    assert before == (settings.readlink() if settings.is_symlink() else settings.read_bytes())
    assert str(settings) in failed.err.replace("~", str(world.home)).replace("\n", "")
    assert agent_hooks.is_installed("codex")
    assert CLAUDE.value(CLAUDE.path().read_text())["args"][-1] == "mcp"


@pytest.mark.parametrize("way", [CLAUDE, CODEX], ids=["claude", "codex"])
def test_a_byte_order_mark_stays_and_an_empty_file_is_one_without_settings(setup, world, way):
    """The agents read such files in this way, too."""
    full(world.home)
    hooks = agent_hooks.settings_file(way.agent)
    for path in {way.path(), hooks}:
        path.write_bytes(BOM_UTF8 + (path.read_bytes() if path.exists() else b""))
    before = everything(world.home)

    assert 0 == setup("--yes", "--agent", way.agent).code

    assert way.path().read_bytes().startswith(BOM_UTF8)
    assert way.value(way.path().read_text("utf-8-sig"))["args"][-1] == "mcp"
    assert agent_hooks.is_installed(way.agent)
    assert 0 == setup("--remove").code
    assert before == everything(world.home)
    for path in (way.path(), hooks):
        path.write_bytes(b"")
    assert 0 == setup("--yes", "--agent", way.agent).code
    assert way.value(way.path().read_text())["args"][-1] == "mcp"
