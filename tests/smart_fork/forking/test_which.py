"""Tests of the choice among about equally likely sessions, and of its wording."""

from __future__ import annotations

from datetime import datetime

from smart_fork.finding.hit import Hit
from smart_fork.forking.request import about_as_likely
from smart_fork.server.choice_form import labels
from tests.smart_fork.answers import a_hit
from tests.support.cases import parametrize_subtests


def at(hour: str) -> str:
    """Return a moment on the local clock of the test."""
    return datetime.fromisoformat(f"2026-01-03T{hour}:00+00:00").astimezone().strftime("%Y-%m-%d %H:%M")


def hit(number: int = 1, *, score: float = 0.62, title: str = "Add retry to the uploader", **more: object) -> Hit:
    moments = {"date": "2026-01-03T09:00:00Z", "last_activity": "2026-01-03T14:05:00Z"}
    return a_hit(score, f"session-{number}", title=title, **moments | more)


def label(title: str) -> str:
    return labels([hit(title=title)])["session-1"]


def test_what_is_within_a_twentieth_of_the_likeliest_is_about_as_likely_wherever_it_stands():
    """For low scores, a share of them counts: the rule that puts the better one to fork first."""
    high = [hit(1, score=0.77), hit(2, score=0.8), hit(3, score=0.751), hit(4, score=0.74)]
    low = [hit(1, score=0.20), hit(2, score=0.171), hit(3, score=0.16)]

    assert ["session-1", "session-2", "session-3"] == [one.session_id for one in about_as_likely(high)]
    assert ["session-1", "session-2"] == [one.session_id for one in about_as_likely(low)]
    assert [] == about_as_likely([])


def test_a_label_is_title_agent_moment_and_chance_never_rounded_up():
    assert f"Add retry to the uploader · claude · {at('14:05')} · 62 %" == labels([hit(score=0.6299)])["session-1"]
    assert f"(no title) · claude · {at('09:00')} · 62 %" == labels([hit(title="", last_activity="")])["session-1"]


def test_labels_that_would_be_the_same_are_told_apart():
    told = labels([hit(1), hit(2), hit(3, title="Another")])

    assert 3 == len(set(told.values()))
    assert told["session-2"].endswith(" · session-2")
    assert told["session-3"].endswith(" %")


@parametrize_subtests(
    ("title", "shown"),
    [
        ("# Heading `code` **bold** _words_ __init__", "Heading 'code' bold words init"),
        ("[click](https://evil) <b>now</b> &lt;script&gt;", "(click)(https://evil) (b)now(/b) +lt;script+gt;"),
        ("snake_case R&D ~~gone~~ a|b", "snake_case R&D gone a/b"),
        ("done · codex · 2027-01-01 · 99 %", "done - codex - 2027-01-01 - 99 %"),
        ("two\nlines\tand\x1b[31m red\x07 \u202egnp.exe\u200b", "two lines and(31m red gnp.exe"),
        ("token ghp_" + "a1B2" * 9, "token (REDACTED:github-token)"),
    ],
)
def test_a_title_is_a_quotation_without_markup_control_characters_and_secrets(title, shown):
    assert f"{shown} · claude · {at('14:05')} · 62 %" == label(title)


def test_a_long_title_is_masked_first_and_shortened_after():
    told = label("words " * 8 + "ghp_" + "a1B2" * 9 + " and more" * 100)

    assert "a1B2" not in told
    assert told.endswith(f" · claude · {at('14:05')} · 62 %")
    assert len(told.partition(" · ")[0]) <= 60
