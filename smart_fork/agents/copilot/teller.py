"""Sessions of other agents as Copilot CLI takes them: a head, and an event for each thing that was said.

Seen with 1.0.102: it sends what stands in ``content``, and does not load an answer without a ``messageId``; of the
events around an answer it needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from uuid import UUID, uuid5

from smart_fork.agents.forms import Becomes, Record, Teller, Utterance

#: The events of a session that another agent began are named in this space.
_MADE = UUID("3c8f1d52-0a4e-5b67-8d29-636f70696c6f")

#: What the person's events are called, and the agent's, and what these say beside it.
_KINDS = {True: "user.message", False: "assistant.message"}
_BESIDE: dict[bool, Record] = {True: {}, False: {"toolRequests": []}}


class CopilotTeller(Teller):
    """Its logs."""

    def log_of(self, said: Iterable[Utterance], becomes: Becomes) -> Iterator[Record]:
        """See `Teller.log_of`."""
        utterances = list(said)
        first = next((one.moment for one in utterances if one.moment), "")
        head: Record = {
            "sessionId": becomes.session_id, "version": 1, "producer": "copilot-agent", "copilotVersion": "1.0.102",
            "startTime": first, "context": {"cwd": becomes.place.root},
        }  # fmt: skip
        events = chain(
            [("session.start", head, first)],
            ((_KINDS[one.user], {"content": one.text, **_BESIDE[one.user]}, one.moment) for one in utterances),
        )
        parent: str | None = None
        for number, (kind, data, moment) in enumerate(events):
            identity = str(uuid5(_MADE, f"{becomes.session_id} {number}"))
            told = data | ({"messageId": identity} if number else {})
            yield {"type": kind, "data": told, "id": identity, "timestamp": moment, "parentId": parent}
            parent = identity
