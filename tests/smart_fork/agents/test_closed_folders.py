"""Folders of sessions that may not be read: this is reported, and no session is called missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

#: Who may read everything does without that.
_LIKE_OTHERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
LISTED = """
import sys
from smart_fork.agents.log_readers import READERS
for agent in READERS:
    print(agent.name, agent.unread())
sys.argv[0] = "smart-fork"
from smart_fork.cli.main import main
main()
"""


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything")
@pytest.mark.slow
def test_a_closed_folder_is_told_from_one_that_is_not_there(world, shop):
    session = world.claude(shop, "retry", "ok")
    closed = world.log_of(session).parent.parent
    closed.chmod(0)
    try:
        told = subprocess.run(
            [*(_LIKE_OTHERS if os.geteuid() == 0 else ()), sys.executable, "-c", LISTED, "show", session],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        closed.chmod(0o700)

    assert f"claude {closed} cannot be read" in told.stdout, told.stderr
    assert "codex \n" in told.stdout
    assert told.returncode == 3
    assert f"No session of Claude Code can be read: {closed} cannot be read" in told.stderr
