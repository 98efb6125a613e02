"""The token: its file, and its rotation."""

from __future__ import annotations

import os
import stat

import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service.token import Token, TokenUnsafe, change, token


def test_the_token_is_made_once_and_is_private(home):
    assert token() == token()
    assert 64 == len(token())
    assert 0o600 == stat.S_IMODE((state_home() / "service-token").stat().st_mode)


@pytest.mark.parametrize("kind", ["readable", "writable", "link", "folder", "pipe", "empty", "short", "other"])
def test_a_token_that_is_not_only_ours_is_not_used(home, kind):
    """An empty token would admit everybody."""
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


def test_the_token_of_somebody_else_is_not_used(home, monkeypatch):
    token()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TokenUnsafe, match="belongs to another user"):
        token()


def test_a_token_that_is_changed_is_another_one_at_once(home):
    told = []
    now = Token(lambda: told.append("changed"))
    first = now()

    assert first == now() == token()
    assert [] == told
    assert first == change()
    assert first != now() == token()
    (state_home() / "service-token").unlink()
    third = now()
    assert third == token()
    assert ["changed"] * 2 == told


@pytest.mark.parametrize(
    "harm", [lambda path: path.chmod(0o644), lambda path: path.write_text("")], ids=["readable", "empty"]
)
def test_a_token_that_becomes_unsafe_opens_nothing_any_more(home, harm, caplog):
    now = Token()
    path = state_home() / "service-token"
    first = now()
    harm(path)

    assert now() not in ("", first)
    assert "nobody is let in" in caplog.text
    assert first not in caplog.text
    change()
    assert now() == token() != first


def test_a_link_is_replaced_and_not_followed_by_another_token(home, tmp_path):
    token()
    path = state_home() / "service-token"
    (tmp_path / "theirs").write_text("x")
    path.unlink()
    path.symlink_to(tmp_path / "theirs")

    assert change() is None
    assert 64 == len(token())
    assert "x" == (tmp_path / "theirs").read_text()
