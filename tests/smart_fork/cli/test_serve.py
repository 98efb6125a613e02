"""``serve`` as a process, and ``open``."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service import client, token
from smart_fork.cli.service.client import ServiceGoneError, find_service
from smart_fork.cli.service.instance import Address
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.service.conftest import served  # noqa: F401 - a fixture
from tests.smart_fork.test_docs import assert_documented

SCRIPT = """
import sys, threading
from smart_fork.cli.main import main
from smart_fork.cli.service import server
server.serve = lambda *_, **__: threading.Thread(target=threading.Event().wait).start()
sys.argv = ["smart-fork", "serve"]
main()
"""


@pytest.mark.slow
def test_the_service_ends_well_whatever_a_thread_is_still_at(home):
    """F-193: the model's libraries abort a process that is taken down while they compute."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT], timeout=60, capture_output=True, text=True, check=False)

    assert (0, "") == (ended.returncode, ended.stderr)


def test_a_service_that_is_gone_before_it_has_let_the_browser_in_is_said(run, monkeypatch):  # noqa: F811
    class Gone:
        address = Address("127.0.0.1", 1, 1, "1", "")

        def way_in(self, _project):
            raise ServiceGoneError("connection refused")

    monkeypatch.setattr("smart_fork.cli.service.client.find_service", Gone)
    answered = run("open", "--print")

    assert 1 == answered.code
    assert "The service does not answer: connection refused" in answered.err
    assert "smart-fork logs" in answered.err


@pytest.mark.parametrize(("starting", "found"), [(True, True), (False, False)])
def test_a_service_that_is_just_starting_is_waited_for(announced, monkeypatch, starting, found):
    """The port accepts connections before the service answers. Nobody must read meanwhile that no service runs."""
    looked = []

    def find_later():
        looked.append(1)
        return find_service() if len(looked) > 2 else None

    monkeypatch.setattr("smart_fork.cli.service.client.find_service", find_later)
    monkeypatch.setattr("smart_fork.cli.service.client.holder", lambda: 1 if starting else None)
    monkeypatch.setattr("smart_fork.cli.service.client.LOOK_SECONDS", 0)

    assert found == (client.started_service() is not None)
    assert len(looked) == (3 if starting else 1)


@pytest.mark.slow
def test_the_page_is_opened_where_no_service_runs_for_one_is_started(run, home, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SMART_FORK_BACKGROUND", "1")
    try:
        opened = run("open", "--print")

        assert 0 == opened.code, opened.err
        assert opened.out.startswith(state_home().as_uri())
        assert "smart-fork service stop" in opened.err
        assert "smart-fork service stop" not in run("open", "--print").err, "it runs already"
    finally:
        assert "The service was stopped." in run("service", "stop").out


def test_a_service_that_does_not_start_is_said_with_where_it_says_why(run, home, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SMART_FORK_BACKGROUND", "1")
    monkeypatch.setattr("sys.executable", "/bin/false")

    opened = run("open", "--print")

    assert 1 == opened.code
    assert "The service did not start" in opened.err
    assert "service-crash.log" in opened.err


@pytest.mark.parametrize("name", ["SMART_FORK_SERVICE", "SMART_FORK_BACKGROUND"])
def test_no_service_is_started_for_who_wants_none(run, home, monkeypatch, name):  # noqa: F811
    monkeypatch.setenv(name, "false")

    opened = run("open", "--print")

    assert 3 == opened.code
    assert "Start it: smart-fork serve" in opened.err
    assert not (state_home() / "service.lock").exists()


@pytest.fixture
def announced(served):  # noqa: F811
    """Run a service with a written address, so that commands find it."""
    served.announce()
    return served


def test_what_the_browser_is_started_with_tells_no_secret(run, announced, monkeypatch, tmp_path):  # noqa: F811
    """Every user of a machine can read the browser's command line."""
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/started.new"\nmv "{tmp_path}/started.new" "{tmp_path}/started"\n'
    )
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))

    assert 0 == run("open").code

    (address,) = (tmp_path / "started").read_text().splitlines()
    file = Path(unquote(urlsplit(address).path))
    assert "file" == urlsplit(address).scheme
    assert state_home() in file.parents
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    code = file.read_text().partition('name="code" value="')[2].partition('"')[0]
    assert code
    assert code not in address
    assert announced.entrance.entries.use(code)


def test_the_address_is_printed_and_what_a_browser_elsewhere_needs_is_in_json(run, announced):  # noqa: F811
    printed = run("open", "--print")
    told = json.loads(run("open", "--json").out)

    assert printed.out.startswith(state_home().as_uri())
    assert f"http://127.0.0.1:{announced.port}/open" in printed.err
    assert_documented("open", told)
    assert told["code"] not in told["url"]
    assert announced.entrance.entries.use(told["code"])


def test_rotating_changes_the_token_at_once_and_says_who_has_the_old_one(run, announced, home):  # noqa: F811
    old, cookie = announced.secret, announced.cookie()
    settings = home / ".claude.json"
    settings.write_text(json.dumps({"mcpServers": {"smart-fork": {"headers": {"Authorization": f"Bearer {old}"}}}}))
    content = settings.read_bytes()

    done = run("service", "rotate", "--json")

    assert 0 == done.code
    told = json.loads(done.out)
    assert_documented("service rotate", told)
    assert {"rotated": True, "service": f"http://127.0.0.1:{announced.port}", "holders": [str(settings)]} == told
    assert old != announced.secret == token.token()
    assert old not in done.out + done.err
    assert announced.secret not in done.out + done.err
    assert content == settings.read_bytes(), "they are the agents' own"
    assert "idle" == find_service().status.indexing["state"], "our own programs need no token"
    assert 401 == announced.answer("GET", "/", Cookie=cookie).status
    assert 401 == announced.answer("POST", "/recall", b"{}", Cookie="", Authorization=f"Bearer {old}").status
    again = run("service", "rotate")
    assert "has taken it" in again.out
    assert "" == again.err, "nobody has that one"


def test_rotating_without_a_service_changes_the_token_all_the_same(run, home):  # noqa: F811
    old = token.token()

    done = run("service", "rotate")

    assert (0, True) == (done.code, "no service runs" in done.out)
    assert old != token.token()
    path = state_home() / "service-token"
    path.chmod(0o644)
    assert 0 == run("service", "rotate").code, "one that must not be used is replaced"
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_a_service_that_does_not_take_the_token_is_an_error(run, home):  # noqa: F811
    """The service hangs, so it has not read the new token."""
    state_home().mkdir()
    code = (
        "import signal; from smart_fork.cli.service import instance; print(instance.hold(), flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as hangs:
        assert b"True\n" == hangs.stdout.readline()

        done = run("service", "rotate")
        hangs.kill()

    assert 1 == done.code
    assert f"the running service (process {hangs.pid}) did not accept it" in done.err
    assert "smart-fork service stop" in done.err


def test_a_token_that_cannot_be_written_stays(run, home):  # noqa: F811
    path = state_home() / "service-token"
    path.mkdir(parents=True)

    done = run("service", "rotate", "--json")

    assert 1 == done.code
    assert "was not changed" in json.loads(done.out)["error"]


def test_at_a_terminal_the_service_says_where_it_is_and_how_to_come_to_it(home, capsys):
    from smart_fork.cli.service_commands import _print_address

    _print_address(Address("127.0.0.1", 8766, 1, "0", "now", "/x/service.sock"))

    said, token = capsys.readouterr().err, shlex.quote(f"{home}/.smart-fork/service-token")
    assert "has no socket" not in said
    assert "Serving at http://127.0.0.1:8766. Ctrl-C ends it, or elsewhere: smart-fork service stop" in said
    assert "smart-fork open" in said
    assert f'http://127.0.0.1:8766/mcp --header "Authorization: Bearer $(cat {token})"' in said


def test_a_service_without_a_socket_says_so_at_a_terminal(home, capsys):
    from smart_fork.cli.service_commands import _print_address

    _print_address(Address("127.0.0.1", 8766, 1, "0", "now"))

    assert "It has no socket" in capsys.readouterr().err
