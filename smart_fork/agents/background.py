"""Sessions that an agent keeps in the background itself, by its own verbs: Claude Code, whose list and app show them.

Seen with 2.1.332:

* ``--bg`` prints ``backgrounded · ID`` and returns; a supervisor runs the session, and ends 5 seconds after the last;
* it ignores ``--session-id``, and takes a prompt for a command even with a blank before it: ``/clear``, ``doctor``;
* a session gets the environment of the supervisor, thus of whoever started that. ``--settings`` reaches its hooks;
* ``--resume`` continues a session that was stopped under its id, with its options; if others are given, or it runs, it
  starts a copy;
* ``stop`` ends a session and keeps its conversation. There is no verb for a message.

2.1.197 has these verbs hidden: its sessions lose ``ANTHROPIC_BASE_URL``, and it only resumes copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from indexer.lazy import late
from indexer.values import dict_in, dicts_in, json_at, json_in, text_in
from smart_fork.agents.description import Facet

_BEGUN = late(r"(?m)^backgrounded · (\w+)")


class BackgroundSession(NamedTuple):
    """A session as its agent lists it. It has a process if it `runs`; one that begins has none yet, and is not `over`.

    `asks` says what it waits for; empty if it does not.
    """

    session_id: str
    runs: bool
    over: bool
    asks: str


class Background(Facet):
    """The verbs of one agent."""

    #: The help of a version that has them matches this.
    sign = r"(?m)^  stop\b.* <id>"
    listing = ("agents", "--json", "--all")

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command that starts `argv` in the background. Its hooks and servers get `env`, if any."""
        settings = ("--settings", orjson.dumps({"env": dict(env)}).decode()) if env else ()
        return (argv[0], "--bg", *settings, *argv[1:])

    def begun(self, said: str) -> str:
        """Return the id of a session from what its start printed; empty if it began none."""
        found = _BEGUN.search(said)
        return found[1] if found else ""

    def sessions(self, said: bytes) -> Mapping[str, BackgroundSession]:
        """Return all sessions by id, from what `listing` printed."""
        return {
            text_in(row.get("id")): BackgroundSession(
                text_in(row.get("sessionId")), "pid" in row, row.get("state") in ("done", "failed", "stopped"),
                text_in(row.get("waitingFor")) if row.get("status") == "waiting" else "",
            )
            for row in dicts_in(json_in(said))
        }  # fmt: skip

    def last_words(self, one: str) -> str:
        """Return why the session of that id has ended; empty if that is not known."""
        return text_in(dict_in(json_at(self.of.home.folder() / "jobs" / one / "state.json")).get("detail"))
