"""Files of tests that run in one process, one after the other: what the first has loaded or started serves the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

#: By what they share: PyTorch takes seven seconds to load, the corpus three to lay out, the service of the page and a machine with two
#: agents as long as PyTorch, a team's server three.
TOGETHER = {
    "PyTorch": (
        "tests/indexer/test_device.py",
        "tests/indexer/test_embedder.py",
        "tests/indexer/test_model_notice.py",
        "tests/indexer/test_models.py",
        "tests/smart_fork/finding/test_rerank.py",
        "tests/smart_fork/test_absent_model.py",
    ),
    "the corpus": (
        "tests/indexer/transcripts/test_real_logs.py",
        "tests/smart_fork/excise/test_properties.py",
        "tests/smart_fork/sharing/test_real_sessions.py",
    ),
    "the page": (
        "tests/e2e/test_page.py",
        "tests/e2e/test_page_commits.py",
        "tests/e2e/test_page_reading.py",
        "tests/e2e/test_page_since.py",
        "tests/e2e/test_page_workers.py",
    ),
    "a machine": (
        "tests/e2e/test_branching.py",
        "tests/e2e/test_budget.py",
        "tests/e2e/test_calling.py",
        "tests/e2e/test_fan_out.py",
        "tests/e2e/test_following.py",
        "tests/e2e/test_forking.py",
        "tests/e2e/test_starting.py",
        "tests/e2e/test_verdicts.py",
    ),
    "a machine with recall": (
        "tests/e2e/test_after_failure.py",
        "tests/e2e/test_before_edit.py",
        "tests/e2e/test_recall.py",
    ),
    "a team's servers": (
        "tests/smart_fork/team/server/test_deploy.py",
        "tests/smart_fork/team/server/test_metrics.py",
        "tests/smart_fork/team/server/test_serve.py",
        "tests/smart_fork/team/server/test_several_servers.py",
        "tests/smart_fork/team/server/test_surroundings.py",
    ),
}
_SHARED = {file: name for name, files in TOGETHER.items() for file in files}


def shared(file: str) -> str:
    """What all tests of a file have in common with those of others; else the file itself."""
    return _SHARED.get(file, file)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out tests file by file, and such files together; None where they are not to be handed out by files."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared(super()._split_scope(nodeid))

    return LoadTogether(config, log)
