"""The check before indexing."""

from indexer import background_indexer
from indexer.safe_files import state_home
from smart_fork.agents.log_readers import READERS


def test_missing_folders_keep_one_agent_out_and_say_what_to_do(home):
    """F-181, F-182."""
    found = background_indexer.check_prerequisites(READERS)
    assert ((), (), len(READERS.names)) == (found.agents, found.errors, len(found.warnings))
    (home / ".codex/archived_sessions").mkdir(parents=True)
    READERS["claude"].home().mkdir()
    (READERS["claude"].home() / "projects").write_text("not a folder")

    found = background_indexer.check_prerequisites(READERS)

    assert ("codex",) == found.agents
    assert "claude is not indexed yet: " in found.warnings[0]
    assert "CLAUDE_CONFIG_DIR" in found.warnings[0]
    assert [] == list(state_home().rglob(".probe"))


def test_a_state_folder_that_cannot_be_written_is_an_error(monkeypatch):
    """F-181."""
    monkeypatch.setenv("SMART_FORK_HOME", "/dev/null/x")
    found = background_indexer.check_prerequisites(READERS)

    assert 2 == len(found.errors)
    assert "make it writable, or set SMART_FORK_HOME" in found.errors[0]
