"""Where the service listens."""

from __future__ import annotations

import resource
import socket
from contextlib import closing

import pytest

from smart_fork.errors import ProgramFailed, Usage
from smart_fork.service.connections import MAX_CONNECTIONS
from smart_fork.service.running import allow_files, listen, serve


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_and_any_other_one_that_is_free(home, monkeypatch, caplog):
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = other.getsockname()[1]
        with pytest.raises(ProgramFailed, match=f"Port {taken} of 127.0.0.1 is taken"):
            listen("127.0.0.1", taken)
        monkeypatch.setenv("SMART_FORK_PORT", str(taken))
        with closing(listen("127.0.0.1", None)) as listening:
            assert taken != listening.getsockname()[1]
    assert f"port {taken} is taken" in caplog.text


@pytest.mark.parametrize("host", ["203.0.113.1", "no such name"])
def test_an_address_that_is_not_this_machines_is_not_called_a_port_that_is_taken(home, host, caplog):
    with pytest.raises(ProgramFailed, match=f"cannot listen at {host}") as caught:
        listen(host, None)

    assert "--host" in caught.value.hint
    assert "taken" not in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_an_address_that_nobody_can_ask_for_is_refused(home, host):
    """A request under any other name than ours is refused, so that nobody could reach it there."""
    with pytest.raises(Usage, match="no address that a client can ask for"):
        serve(host, allow_remote=True)


def test_where_few_files_may_be_open_connections_leave_some_for_the_index():
    """Launchd starts programs with 256, and everybody on this machine may connect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        allow_files()
        assert 2 * MAX_CONNECTIONS < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        allow_files()
        assert (hard, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
