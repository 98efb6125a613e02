"""The address at which the server listens."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace

import pytest

from smart_fork.errors import ProgramFailed, Usage
from smart_fork.team import server
from smart_fork.team.server import ServerOptions


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_plain_http_on_another_address_than_loopback_is_refused(listen):
    with pytest.raises(Usage, match="unencrypted"):
        server.listening_sockets(ServerOptions(listen))
    if listen.startswith("["):
        try:
            socket.socket(socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    for more in ({"tls_cert": "c", "tls_key": "k"}, {"behind_proxy": True}):
        for one in server.listening_sockets(ServerOptions(listen, **more)):
            one.close()


@pytest.mark.parametrize("missing", ["::1", "127.0.0.1"])
@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_an_address_of_the_host_that_this_machine_does_not_have_is_left_out(monkeypatch, missing, number):
    """In a container without IPv6, the list of hosts may still have ::1 for localhost."""
    asked = []

    def create(where, **_):
        if where[0] in gone:
            raise OSError(number, "not here")
        asked.append(where[0])
        return socket.create_server(("127.0.0.1", 0))

    own = SimpleNamespace(**vars(socket) | {"getaddrinfo": lambda *_, **__: known, "create_server": create})
    known = [(None, None, None, None, (one, 0)) for one in ("::1", "127.0.0.1")]
    monkeypatch.setattr(server, "socket", own)

    gone = {missing}
    for one in server.listening_sockets(ServerOptions("localhost:0")):
        one.close()
    gone = {"::1", "127.0.0.1"}
    with pytest.raises(ProgramFailed, match="not here"):
        server.listening_sockets(ServerOptions("localhost:0"))

    assert {"::1", "127.0.0.1"} - {missing} == set(asked)


@pytest.mark.parametrize("listen", ["", "8770", "127.0.0.1", "127.0.0.1:99999", "a b:1:2", "[::1", "-x"])
def test_an_address_that_is_none_is_refused(listen):
    with pytest.raises((Usage, ProgramFailed)):
        server.listening_sockets(ServerOptions(listen))


def test_a_certificate_needs_its_key():
    with pytest.raises(Usage, match="needs its key"):
        server.listening_sockets(ServerOptions("127.0.0.1:0", tls_cert="c"))
