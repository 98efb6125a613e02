"""Gemini CLI's login: a key in the environment, or what its window has stored.

Seen with 0.61: ``security.auth.selectedType`` in its settings says what it logs in with; without a way to log in it
ends immediately. There is no command that says whether it is logged in. It also reads ``.env`` files.
"""

from __future__ import annotations

from collections.abc import Mapping

from smart_fork.agents.login import Login, table

#: Any of the first logs it in, the others say how, and whom it asks.
_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_BESIDE = (
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA", "GOOGLE_CLOUD_ACCESS_TOKEN", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL",
    "GEMINI_MODEL", "GEMINI_CLI_TRUST_WORKSPACE",
)  # fmt: skip


class GeminiLogin(Login):
    """See `Login`."""

    command = "gemini"
    keys, beside = _KEYS, _BESIDE

    def is_plain(self, env: Mapping[str, str]) -> bool:
        if table(table(self.settings(), "security"), "auth").get("selectedType") == "oauth-personal":
            return self.has_stored("oauth_creds.json")
        return super().is_plain(env)
