from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from smart_fork.errors import Usage
from smart_fork.sharing.canonical import NOTHING
from smart_fork.team import wire
from tests.support.cases import parametrize_subtests

ID = "0197f2c7-0000-7000-8000-000000000000"
PLACE = {
    "digest": "0" * 64,
    "first_record": 0,
    "records": 2,
    "raw_bytes": 10,
    "chain_start": NOTHING,
}
PUSH = {
    "id": ID,
    "agent": "any",
    "base_count": 0,
    "base_digest": NOTHING,
    "count": 2,
    "digest": NOTHING,
    "segments": [PLACE],
    "bodies": [{"digest": "0" * 64, "body": "AAEC"}],
    "tags": ["a", "b"],
    "meta": {"last_activity": "2026-01-02T03:04:05Z"},
}


def test_a_push_travels_as_json():
    push = wire.Push.model_validate_json(json.dumps(PUSH))

    assert b"\x00\x01\x02" == push.bodies[0].body
    assert push == wire.Push.model_validate_json(push.model_dump_json())


@parametrize_subtests(
    "change",
    [
        {"owner": "alice"},
        {"segments": [PLACE | {"more": 1}]},
        {"id": "../../etc/passwd"},
        {"id": ID.upper() + "\n"},
        {"id": f"{ID}\n"},
        {"digest": "sf1:" + "A" * 64},
        {"base_count": -1},
        {"base_count": "0"},
        {"base_count": 0.0},
        {"base_count": True},
        {"base_count": 3},
        {"count": 3},
        {"segments": [PLACE, PLACE]},
        {"segments": [PLACE, PLACE | {"first_record": 3}]},
        {"segments": [PLACE | {"records": 513}]},
        {"segments": [PLACE | {"digest": "A" * 64}]},
        {"agent": "--help"},
        {"visibility": "everybody"},
        {"title": "x" * 201},
        {"tags": ["x"] * 51},
        {"bodies": [{"digest": "0" * 64, "body": "?"}]},
    ],
)
def test_what_no_client_says_is_refused(change):
    with pytest.raises(ValidationError):
        wire.Push.model_validate_json(json.dumps(PUSH | change))


@pytest.mark.parametrize("text", [b'"\\ud800"', b'"\xff"', b"NaN"])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(ValidationError):
        wire.SessionChange.model_validate_json(b'{"title":' + text + b"}")


def test_what_would_act_on_a_terminal_is_taken_out_of_what_people_read():
    said = wire.SessionChange(title="\x1b]0;owned\x07 a\u202eb\nc\0", tags=("x\x1b[31m",), summary="one\r\ntwo\x1b")

    assert said.title is not None
    assert said.title.isprintable()
    assert said.tags
    assert said.tags[0].isprintable()
    assert said.summary is not None
    assert said.summary.startswith("one\ntwo")
    assert all(line.isprintable() for line in said.summary.splitlines())


def test_a_tag_without_a_readable_character_is_refused():
    with pytest.raises(Usage, match=r"^tags\.0: it has no readable character$"):
        wire.valid_message(wire.SessionChange, tags=(" \x1b ",))


@pytest.mark.parametrize("key", ["github.com/acme/../x", "GitHub.com/a/b", "/etc/passwd", ""])
def test_a_project_that_no_remote_names_is_refused(key):
    with pytest.raises(ValidationError):
        wire.AuditLine.model_validate(
            {"at": "2026-01-02T03:04:05Z", "actor": "a", "verb": "push", "project": key}, strict=False
        )


def test_the_command_line_starts_without_any_of_it():
    script = "import sys, smart_fork.cli; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert not {"pydantic", "zstandard", "smart_fork.sharing"} & set(run.stdout.split())
