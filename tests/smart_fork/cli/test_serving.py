"""``serve`` as a process."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, threading
from smart_fork.cli import main
from smart_fork.service import running
running.serve = lambda *_, **__: threading.Thread(target=threading.Event().wait).start()
sys.argv = ["smart-fork", "serve"]
main()
"""


def test_the_service_ends_well_whatever_a_thread_is_still_at(home):
    """F-193: the libraries of the model abort a process that is taken down while they compute."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT], timeout=60, capture_output=True, text=True, check=False)

    assert (0, "") == (ended.returncode, ended.stderr)
