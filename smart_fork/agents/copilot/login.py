"""Copilot CLI's login: a token in the environment, a model of one's own, or what ``copilot login`` has stored.

There is no command that says whether it is logged in.
"""

from __future__ import annotations

from smart_fork.agents.login import Login

#: Any of these logs it in; the last is a model of one's own.
_KEYS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")
#: How that is asked.
_BESIDE = (
    "COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_PROVIDER_TYPE", "COPILOT_PROVIDER_WIRE_API",
    "COPILOT_MODEL", "COPILOT_OFFLINE", "GH_HOST",
)  # fmt: skip


class CopilotLogin(Login):
    """See `Login`."""

    command = "copilot login"
    keys, beside = _KEYS, _BESIDE
