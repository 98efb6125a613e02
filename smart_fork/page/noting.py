"""The form beside a session by which a person notes what came of it, tags, pins and archives it."""

from __future__ import annotations

from collections.abc import Mapping

from smart_fork import notes
from smart_fork.errors import Usage
from smart_fork.workers import outcomes

_MARKS = {"pin": notes.PINNED, "archive": notes.ARCHIVED}


def noted(form: Mapping[str, str]) -> outcomes.NotedSession:
    """Note what the form says.

    Raises:
        SmartForkError: it was not noted.
    """
    session, (do, _, name) = form.get("session", ""), form.get("do", "").partition(" ")
    if do == "verdict":
        return outcomes.judge(session, notes.outcome(form.get("outcome", "")), form.get("reason", ""))
    if do == "unjudge":
        return outcomes.unjudge(session)
    if do not in ("tag", "untag", "mark", "unmark") or (do.endswith("mark") and name not in _MARKS):
        raise Usage("No such action", "Reload the page.")
    mark = _MARKS[name] if do.endswith("mark") else notes.tag(name or form.get("tag", "").strip())
    return outcomes.mark([session], [mark], remove=do.startswith("un"))[0]
