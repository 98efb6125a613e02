"""``serve`` as a process, and ``open``."""

from __future__ import annotations

import subprocess
import sys

from smart_fork.service.address import Address
from smart_fork.service.client import ServiceGoneError
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures

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


def test_a_service_that_is_gone_before_it_has_let_the_browser_in_is_said(run, monkeypatch):  # noqa: F811
    class Gone:
        address = Address("127.0.0.1", 1, 1, "1", "")

        def code(self):
            raise ServiceGoneError("connection refused")

    monkeypatch.setattr("smart_fork.service.running.running", Gone)
    answered = run("open", "--print")

    assert 1 == answered.code
    assert "The service does not answer: connection refused" in answered.err
    assert "smart-fork logs" in answered.err
