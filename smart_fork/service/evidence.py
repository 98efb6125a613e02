"""What answers in a session, told by the service, which has all loaded that a command would have to load first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from indexer.transcripts.model import Session
from smart_fork.retrieval.exchange_evidence import ExchangeEvidence, told

log = logging.getLogger(__name__)

#: After so long a command asks the index itself. What others wait for in the service takes less as a rule.
SECONDS = 3.0


class ServiceEvidence:
    """The evidence for one session, asked of the service in a thread while the command reads that session."""

    def __init__(self, session: str, intent: str, also: Sequence[str]) -> None:
        self._asked = {"session": session, "intent": intent, "also": list(also)}
        self._answer: object = None
        self._thread = threading.Thread(target=self._ask, name="ask the service", daemon=True)
        self._thread.start()

    def of(self, session: Session) -> ExchangeEvidence | None:
        """What it has told; `None` where that is nothing, or of another session than this one."""
        self._thread.join(SECONDS)
        answer = self._answer
        meant = [session.agent, session.session_id, session.cwd, len(session.turns)]
        if not isinstance(answer, dict) or answer.get("of") != meant:
            return None
        try:
            return told(answer)
        except ValueError as error:
            log.warning("what the service tells is not taken over: %s", error)
            return None

    def _ask(self) -> None:
        from indexer.models import configured_embedder
        from smart_fork.service.client import ServiceGoneError, find_service

        try:
            service = find_service()
            if service is not None and service.model == configured_embedder().model:
                self._answer = service.evidence(self._asked, SECONDS)
        except (ServiceGoneError, OSError, ValueError) as error:
            log.info("the service tells nothing: %s", error)
