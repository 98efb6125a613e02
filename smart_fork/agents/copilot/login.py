"""Copilot CLI's login: a token in the environment, a model of one's own, or what ``copilot login`` has stored.

There is no command that says whether it is logged in.
"""

from __future__ import annotations

from collections.abc import Mapping

from indexer.transcripts.model import AgentName
from smart_fork.agents.copilot.home import HOME
from smart_fork.agents.login import Standing
from smart_fork.processes import Processes

#: Any of the first logs it in, the second is a model of one's own; the others say how that is asked.
_TOKENS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN")
_PROVIDER = "COPILOT_PROVIDER_BASE_URL"
_BESIDE = (
    "COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_PROVIDER_TYPE", "COPILOT_PROVIDER_WIRE_API",
    "COPILOT_MODEL", "COPILOT_OFFLINE", "GH_HOST",
)  # fmt: skip


class CopilotLogin:
    """See `Login`."""

    agent: AgentName = "copilot"
    command = "copilot login"
    folder = HOME.variable

    def variables(self) -> tuple[str, ...]:
        """See `Login.variables`."""
        return (*_TOKENS, _PROVIDER, *_BESIDE)

    def settled(self) -> frozenset[str]:
        """See `Login.settled`: they set none."""
        return frozenset()

    def required(self) -> tuple[str, ...]:
        """See `Login.required`: one of several may do."""
        return ()

    def is_plain(self, env: Mapping[str, str]) -> bool:
        """See `Login.is_plain`."""
        return any(env.get(name) for name in (*_TOKENS, _PROVIDER))

    def standing(self, env: Mapping[str, str], program: str, processes: Processes) -> Standing:
        """See `Login.standing`. What it has stored is in the system's keyring: that none is seen does not say no."""
        del program, processes
        return Standing(True if self.is_plain(env) else None)
