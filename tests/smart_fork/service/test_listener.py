"""The TCP addresses where the service listens."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from smart_fork.cli.service import server
from smart_fork.cli.service.client import find_service
from smart_fork.cli.service.server import addresses, listen, serve
from smart_fork.errors import ProgramFailed, Usage

NAMES = ("0.0.0.0", "::", "0", "", "::0", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0", "0x0", "000.0.0.0")  # noqa: S104


def has_newer_internet() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture
def both():
    if not has_newer_internet():
        pytest.skip("this machine, or the place of this test, has no ::1")


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_and_any_other_one_that_is_free(home, monkeypatch, caplog):
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = other.getsockname()[1]
        with pytest.raises(ProgramFailed, match=f"Port {taken} of 127.0.0.1 is taken"):
            listen("127.0.0.1", taken)
        monkeypatch.setenv("SMART_FORK_PORT", str(taken))
        with closing(listen("127.0.0.1", None)) as another:
            assert taken != another.port
    assert f"port {taken} is taken" in caplog.text


@pytest.mark.parametrize("host", ["203.0.113.1", "no such name"])
def test_an_address_that_is_not_this_machines_is_not_called_a_port_that_is_taken(home, host, caplog):
    with pytest.raises(ProgramFailed, match=f"cannot listen at {host}") as caught:
        listen(host, None, allow_remote=True)

    assert "--host" in caught.value.hint
    assert "taken" not in caplog.text


@pytest.mark.parametrize("host", NAMES)
def test_an_address_that_nobody_can_ask_for_is_refused(home, host):
    """The guard refuses a request under any other name than the service's, so no client could use that address."""
    with pytest.raises(Usage, match="not an address that clients can use"):
        serve(host, allow_remote=True)


@pytest.mark.parametrize("host", ["203.0.113.1", "2001:db8::1", "::ffff:203.0.113.1"])
def test_an_address_that_others_reach_has_to_be_allowed(home, host):
    with pytest.raises(Usage, match="from other machines"):
        serve(host)


def test_all_of_this_machine_is_this_machine_however_it_is_spelled():
    assert ["127.0.0.1"] == addresses("::ffff:127.0.0.1", allow_remote=False) == addresses("127.1", allow_remote=False)
    assert ["127.0.0.2"] == addresses("127.0.0.2", allow_remote=False)
    assert ["::1"] == addresses("0:0:0:0:0:0:0:1", allow_remote=False)


def test_a_name_is_listened_at_wherever_it_leads(home, both):
    with closing(listen("localhost", None)) as ours:
        assert "127.0.0.1" == ours.host, "a literal address is announced"
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            socket.create_connection((host, ours.port), timeout=120).close()
            with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
                other.bind((host, ours.port))
        port = ours.port
        assert {f"127.0.0.1:{port}", f"[::1]:{port}", f"localhost:{port}"} == set(ours.names)
    with closing(listen("127.0.0.1", None)) as ours:
        assert (f"127.0.0.1:{ours.port}",) == ours.names, "of a literal address nothing else is ours"


def test_a_name_that_leads_to_somebody_else_as_well_is_not_ours(home, both, caplog):
    with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)) as theirs:
        port = theirs.getsockname()[1]
        with closing(listen("localhost", port)) as ours:
            assert (f"127.0.0.1:{port}",) == ours.names
    assert f"port {port} of ::1 is another program's" in caplog.text


def test_a_machine_without_the_newer_internet_has_the_name_all_the_same(home, monkeypatch):
    real = server._bound

    def bound(literal, port):
        if ":" in literal:
            raise OSError(server.errno.EADDRNOTAVAIL, "no such address")
        return real(literal, port)

    monkeypatch.setattr(server, "_bound", bound)
    with closing(listen("localhost", None)) as ours:
        assert (f"127.0.0.1:{ours.port}", f"localhost:{ours.port}") == ours.names


def test_a_flood_of_strangers_keeps_nobody_with_the_token_from_being_answered(monkeypatch, request):
    """The strangers have used up all requests that they may send."""
    for name in ("STRANGERS_BURST", "STRANGERS_RATE", "WRONG_BURST", "WRONG_RATE"):
        monkeypatch.setattr(f"smart_fork.cli.service.request_guard.{name}", 0.0)
    served = request.getfixturevalue("served")
    assert 429 == served.answer("GET", "/static/page.js", Cookie="").status
    assert 429 == served.answer("GET", "/mcp", Cookie="").status

    assert 200 == served.answer("GET", "/healthz", Cookie="").status
    served.announce()
    assert "idle" == find_service().status.indexing["state"]
