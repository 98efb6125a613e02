"""The preview that a person sees before a push."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from smart_fork.sharing.outgoing import prepare
from smart_fork.sharing.tracking import Alias
from smart_fork.team import wire
from smart_fork.team.push_plan import PUBLISH_QUESTION, SEND_QUESTION, Plan
from tests.smart_fork.team.outgoing_logs import assistant, claude, result, use, user

GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 15_000}}
TO = ("https://forks.acme.dev", "github.com/acme/shop", "private")


@pytest.fixture
def out(home):
    root = home / "shop"
    root.mkdir()
    (root / ".smartforkignore").write_text("*.pem")
    log = claude(
        home,
        root,
        user("u1", None, [{"type": "text", "text": f"add \x1b[31mretry, token {GITHUB}"}, PNG]),
        assistant("a1", "u1", use("t", "Edit", file_path=f"{root}/src/up.py", old_string="a", new_string="b")),
        result("r1", "a1", "t"),
        assistant("a2", "r1", use("k", "Bash", command="cat keys/a.pem")),
        result("r2", "a2", "k", "LEAK"),
        assistant("a3", "r2", "done"),
    )
    return prepare(log, "claude", root)


def preview(out, server, key, visibility, *, created, before="private", title=None):
    shared = {"session_id": "0" * 8 + "-0000-7000-8000-" + "0" * 12, "files": (str(out.session.source_path),)}
    made = Plan(
        "",
        out,
        None if created else Alias(**shared),
        wire.SessionChange(visibility=visibility, title=title),
        before=before,
    )
    return made.preview(SimpleNamespace(server=server, key=key))


def test_it_says_what_goes_where_who_reads_it_and_what_does_not_go(out):
    shown = preview(out, *TO, created=True)
    text = "\n".join(shown.lines())

    assert "A new session of Claude Code: add" in text
    assert "github.com/acme/shop on https://forks.acme.dev" in text
    assert "by you alone" in text
    assert "6 records" in text
    assert "files     ./src/up.py" in text
    assert "masked    1 github-token" in text
    assert "retry, token [REDACTED:github-token]" in text
    assert "withheld  tool results from keys/a.pem" in text
    assert "dropped   2 calls of withheld files, 1 image" in text
    assert not {GITHUB, "LEAK", "\x1b"} & {word for word in (GITHUB, "LEAK", "\x1b") if word in text}


def test_as_json_it_says_the_same(out):
    told = json.loads(json.dumps(preview(out, *TO, created=False, title=f"by hand {GITHUB}").as_json()))

    assert [*TO, "private"] == [told[name] for name in ("server", "project", "visibility", "before")]
    assert "by hand [REDACTED:github-token]" == told["title"]
    assert {"github-token": 1} == told["masked"]
    assert (["./src/up.py"], ["keys/a.pem"]) == (told["files"], told["withheld"])
    assert GITHUB not in json.dumps(told)


def test_making_public_what_was_private_is_asked_once_more(out):
    public = (*TO[:2], "public")

    assert "by all members of the project" in "\n".join(preview(out, *public, created=False).lines())
    assert (SEND_QUESTION, PUBLISH_QUESTION) == preview(out, *public, created=False).questions()
    assert (SEND_QUESTION,) == preview(out, *public, created=True).questions()
    assert (SEND_QUESTION,) == preview(out, *public, before="public", created=False).questions()
    assert (SEND_QUESTION,) == preview(out, *TO, created=False).questions()
