"""Where the service is, and whether it is ours."""

from __future__ import annotations

import os
import stat

import pytest

from indexer.paths import state_home
from smart_fork.service.address import (
    Address,
    TokenUnsafe,
    announced,
    cookie_value,
    keep_port,
    proof,
    publish,
    token,
    wanted_port,
    withdraw,
)
from smart_fork.service.client import find_service

HERE = Address("127.0.0.1", 8766, 1, "1.0", "2026-01-01T00:00:00+00:00")


def test_the_token_is_made_once_and_is_private(home):
    assert token() == token()
    assert 64 == len(token())
    assert 0o600 == stat.S_IMODE((state_home() / "service-token").stat().st_mode)


@pytest.mark.parametrize("kind", ["readable", "writable", "link", "folder", "pipe", "empty", "short", "other"])
def test_a_token_that_is_not_only_ours_is_not_used(home, kind):
    """An empty one would let in everybody."""
    path = state_home() / "service-token"
    good = token()
    path.unlink()
    if kind == "link":
        path.with_name("elsewhere").write_text(good)
        path.with_name("elsewhere").chmod(0o600)
        path.symlink_to("elsewhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.write_text({"empty": "", "short": good[:20], "other": "x" * 64}.get(kind, good))
        path.chmod({"readable": 0o640, "writable": 0o602}.get(kind, 0o600))

    with pytest.raises(TokenUnsafe) as refused:
        token()
    assert good not in str(refused.value)
    assert find_service() is None


def test_the_token_of_somebody_else_is_not_used(home, monkeypatch):
    token()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TokenUnsafe, match="not your own"):
        token()


def test_what_a_browser_holds_is_not_the_token_nor_what_anybody_is_told():
    assert cookie_value("one") != cookie_value("two")
    assert cookie_value("one") not in ("one", proof("a browser's cookie", "one", 1))


def test_only_who_has_the_token_can_prove_it_and_only_for_the_port_where_he_is_asked():
    assert proof("nonce", "one", 1) == proof("nonce", "one", 1)
    assert proof("nonce", "one", 1) != proof("nonce", "two", 1)
    assert proof("nonce", "one", 1) != proof("other", "one", 1)
    assert proof("nonce", "one", 1) != proof("nonce", "one", 2)


def test_a_service_says_where_it_is_and_takes_it_back(home):
    assert announced() is None
    publish(HERE)
    assert announced() == HERE
    withdraw(HERE)
    assert announced() is None


def test_a_service_that_ends_late_does_not_take_back_what_its_successor_said(home):
    after = Address("127.0.0.1", 8766, 2, "1.0", "2026-01-01T00:00:01+00:00")
    publish(after)
    withdraw(HERE)
    assert announced() == after


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"port": 1}',
        '{"host":1,"port":"x","pid":0,"version":0,"started":0}',
        '{"host":"127.0.0.1","port":1,"pid":-1,"version":"1","started":""}',
    ],
)
def test_nonsense_is_no_service(home, text):
    publish(HERE)
    (state_home() / "service.json").write_text(text)
    assert announced() is None


def test_an_address_of_the_newer_internet_is_written_in_brackets():
    assert "http://[::1]:1" == Address("::1", 1, 1, "", "").url


def test_the_port_is_what_the_environment_says_else_what_is_installed_else_what_was_kept(home):
    """F-210: one rule, for a service that is started and for one that is installed."""
    assert 8766 == wanted_port({})
    keep_port(9000)
    assert 9000 == wanted_port({})
    assert 9002 == wanted_port({}, installed=9002)
    assert 9001 == wanted_port({"SMART_FORK_PORT": " 9001 "}, installed=9002)
    assert 8766 == wanted_port({}, state=home / "another")
    assert ["service-port"] == [file.name for file in state_home().iterdir()]


@pytest.mark.parametrize("text", ["soon", "0", "65536", "-1", "8766.0", "٨٧٦٦", "9" * 5000, "\ud800"])
def test_what_is_no_port_is_told_and_passed_over(home, text, caplog):
    keep_port(9000)
    assert 9000 == wanted_port({"SMART_FORK_PORT": text})
    assert "no port" in caplog.text
    (state_home() / "service-port").write_bytes(text.encode("utf-8", "replace"))
    assert 8766 == wanted_port({})
