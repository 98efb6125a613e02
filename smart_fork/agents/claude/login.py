"""Claude Code's login: a key or token in the environment, a cloud's own login, or what ``/login`` has stored.

Seen with 2.1.197: ``claude auth status`` says in JSON whether it is logged in, with an ``apiKeyHelper``, the ``env`` of
its settings and the keychain counted in. Without a login it opens its window all the same, and says so there.
"""

from __future__ import annotations

from indexer.values import dict_in, json_in
from smart_fork.agents.login import Login, table
from smart_fork.system.processes import Completed

#: Each of these logs it in.
_KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
)  # fmt: skip
#: Whom it asks, what as, and what the clouds' own logins take.
_BESIDE = (
    "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_VERTEX_PROJECT_ID",
    "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_REGION", "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
)  # fmt: skip


class ClaudeLogin(Login):
    """See `Login`."""

    command = "claude auth login"
    stored = ".credentials.json"
    keys, beside = _KEYS, _BESIDE
    status, listed = ("auth", "status"), r"(?m)^\s+auth\b"

    def settled(self) -> frozenset[str]:
        return frozenset(table(self.settings(), "env"))

    def answered(self, said: Completed) -> bool | None:
        logged_in = dict_in(json_in(said.stdout)).get("loggedIn")
        return logged_in if isinstance(logged_in, bool) else None
