"""Sessions of other agents as Gemini CLI takes them: a head, and a message for each thing that was said.

Before them stands what it says itself to its model of the workspace: nothing else in a log tells the directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID, uuid5

from smart_fork.agents.forms import Becomes, Record, Teller, Utterance
from smart_fork.agents.gemini.home import digest

#: The messages of a session that another agent began are named in this space.
_MADE = UUID("5b0d6a3e-8f0c-5a41-9c57-67656d696e69")


class GeminiTeller(Teller):
    """Its logs."""

    def log_of(self, said: Iterable[Utterance], becomes: Becomes) -> Iterator[Record]:
        """See `Teller.log_of`."""
        utterances = list(said)
        first, last = (next((one.moment for one in some if one.moment), "") for some in (utterances, utterances[::-1]))
        root = becomes.place.root
        yield {
            "sessionId": becomes.session_id, "projectHash": digest(root), "startTime": first, "lastUpdated": last,
            "kind": "main",
        }  # fmt: skip
        workspace = f"<session_context>\n- **Workspace Directories:**\n  - {root}\n</session_context>"
        for number, one in enumerate((Utterance(user=True, text=workspace, moment=first), *utterances)):
            yield {
                "id": str(uuid5(_MADE, f"{becomes.session_id} {number}")), "timestamp": one.moment,
                "type": "user" if one.user else "gemini", "content": [{"text": one.text}],
            }  # fmt: skip
