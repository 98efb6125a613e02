"""Our own program speaks for an agent: the service believes it, and nobody else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.handshake import proof
from smart_fork.service.introduction import HEADER, ForgedError, OtherSettingsError, introduced, introduction
from smart_fork.service.surroundings import surroundings

SECRET = "5" * 64


def signed(facts: object, secret: str = SECRET, label: bytes = b"a caller: ") -> str:
    said = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode()
    return f"{said}.{hmac.new(secret.encode(), label + said.encode(), hashlib.sha256).hexdigest()}"


def facts(**more: object) -> dict[str, object]:
    return {"directory": "/x", "environment": {}, "settings": surroundings()} | more


def test_what_is_said_is_the_directory_and_two_variables(tmp_path, monkeypatch):
    folder = tmp_path / "ä\udcff"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "own")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")

    around = introduced([introduction(SECRET)], SECRET)

    assert (folder, {"CLAUDE_CODE_SESSION_ID": "own"}) == (around.directory, around.environment)
    assert b"secret" not in base64.b64decode(introduction(SECRET).partition(".")[0], b"-_")


FORGED = {
    "nothing": "",
    "no signature": signed(facts()).partition(".")[0],
    "another token": signed(facts(), "6" * 64),
    "another label": signed(facts(), label=b"8766 "),
    "another text": signed(facts()).replace("e", "f", 1),
    "what the service signs for strangers": f"{'8' * 32}.{proof('service', SECRET, '127.0.0.1 8766', '8' * 32)}",
    "too long": signed(facts(directory="/" + "x" * 40_000)),
    "not ASCII": "ä.ö",
    "no object": signed([]),
    "no directory": signed({"environment": {}, "settings": surroundings()}),
    "a relative directory": signed(facts(directory="x")),
    "a directory that is a number": signed(facts(directory=7)),
    "another variable": signed(facts(environment={"PATH": "/evil"})),
    "a variable that is a list": signed(facts(environment={"CLAUDE_PROJECT_DIR": ["/"]})),
    "an environment that is a list": signed(facts(environment=[])),
    "not JSON": f"{'x' * 8}.{hmac.new(SECRET.encode(), b'a caller: xxxxxxxx', hashlib.sha256).hexdigest()}",
    "nested": signed(facts()) + "." + signed(facts()),
}


@pytest.mark.parametrize("kind", FORGED)
def test_what_nobody_of_ours_writes_is_refused(kind):
    with pytest.raises(ForgedError):
        introduced([FORGED[kind]], SECRET)


def test_two_are_none():
    with pytest.raises(ForgedError):
        introduced([signed(facts())] * 2, SECRET)


@given(st.text(), st.text())
def test_whatever_is_made_up_is_refused(said, signature):
    with pytest.raises(ForgedError):
        introduced([f"{said}.{signature}"], SECRET)


@pytest.mark.parametrize("settings", [None, [], 5, {}, {"home": {}}])
def test_settings_are_those_of_the_service_or_others(settings):
    with pytest.raises(OtherSettingsError):
        introduced([signed(facts(settings=settings))], SECRET)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOME", "/other"),
        ("CLAUDE_CONFIG_DIR", "/other"),
        ("CODEX_HOME", "/other"),
        ("SMART_FORK_HOME", "/other"),
        ("SMART_FORK_MODEL", "other"),
        ("SMART_FORK_RERANKER", "other"),
        ("SMART_FORK_CLAUDE", "/other"),
        ("SMART_FORK_INDEXING", "false"),
        ("SMART_FORK_TMUX_SOCKET", "other"),
        ("TMUX", "/other/default,1,2"),
        ("PATH", "/nowhere"),
    ],
)
def test_whoever_would_find_something_else_is_told_what_differs(programs, monkeypatch, name, value):
    theirs = introduction(SECRET)
    monkeypatch.setenv(name, value)

    with pytest.raises(OtherSettingsError, match=r"\w"):
        introduced([theirs], SECRET)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SMART_FORK_INDEXING", "true"),
        ("SMART_FORK_MAX_WORKERS", "3"),
        ("SMART_FORK_DEPTH", "2"),
        ("CLAUDE_CODE_SESSION_ID", "x"),
        ("TMUX", f"/tmp/tmux-{os.getuid()}/default,1,2"),  # noqa: S108 - tmux's own
    ],
)
def test_what_changes_no_answer_may_be_different(programs, monkeypatch, name, value):
    monkeypatch.delenv("TMUX_TMPDIR")
    monkeypatch.setenv(name, value)
    theirs = introduction(SECRET)
    monkeypatch.delenv(name)

    assert introduced([theirs], SECRET)


def test_the_same_folder_under_another_name_is_the_same(home, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(home)
    theirs = introduction(SECRET)
    monkeypatch.setenv("HOME", str(tmp_path / "link"))

    assert introduced([theirs], SECRET)


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ([], 200),
        (["ours"], 200),
        (["forged"], 403),
        (["ours", "ours"], 403),
        (["others"], 409),
    ],
)
def test_the_service_refuses_what_is_forged_or_would_find_something_else(served, told, status):
    headers = {
        "ours": introduction(served.secret),
        "forged": introduction("7" * 64),
        "others": signed(facts(settings={}), served.secret),
    }
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=90)) as connection:
        connection.putrequest("GET", "/status")
        connection.putheader("Authorization", f"Bearer {served.secret}")
        for kind in told:
            connection.putheader(HEADER, headers[kind])
        connection.endheaders()

        assert status == connection.getresponse().status


def test_without_the_token_it_opens_nothing(served):
    assert 401 == served.answer("GET", "/status", Cookie="", **{HEADER: introduction(served.secret)}).status


def test_its_directory_must_be_there(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(OSError, match="No such file"):
        introduction(SECRET)
