"""Claude Code's login: a key or token in the environment, a cloud's own login, or what ``/login`` has stored.

Seen with 2.1.197: ``claude auth status`` says in JSON whether it is logged in, with an ``apiKeyHelper``, the ``env`` of
its settings and the keychain counted in. Without a login it opens its window all the same, and says so there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from indexer.transcripts.model import AgentName
from smart_fork.agents.claude.home import claude_home
from smart_fork.agents.login import STATUS_SECONDS, Login, Standing
from smart_fork.agents.programs import lists
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes

#: Each of these logs it in.
_KEYS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)
#: Whom it asks, what as, and what the clouds' own logins take.
_BESIDE = (
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "ANTHROPIC_FOUNDRY_API_KEY",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_FOUNDRY_RESOURCE",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_PROFILE",
    "AWS_REGION",
    "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
_STATUS = ("auth", "status")
_SIGN = r"(?m)^\s+auth\b"


class ClaudeLogin(Login):
    """See `Login`."""

    agent: AgentName = "claude"
    command = "claude auth login"
    folder = "CLAUDE_CONFIG_DIR"
    keys, beside = _KEYS, _BESIDE

    def settled(self) -> frozenset[str]:
        """See `Login.settled`."""
        try:
            said = json.loads((claude_home() / "settings.json").read_bytes())["env"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return frozenset()
        return frozenset(said) if isinstance(said, dict) else frozenset()

    def is_plain(self, env: Mapping[str, str]) -> bool:
        """See `Login.is_plain`."""
        return any(env.get(name) for name in _KEYS) or (claude_home() / ".credentials.json").is_file()

    def standing(self, env: Mapping[str, str], program: str, processes: Processes) -> Standing:
        """See `Login.standing`. Versions that do not know the question would take it for a prompt."""
        if self.is_plain(env):
            return Standing(logged_in=True)
        try:
            if not lists(program, ("--help",), _SIGN, processes, env):
                return Standing(None)
            said = processes.run([program, *_STATUS], cwd=claude_home().parent, env=env, timeout=STATUS_SECONDS)
            logged_in = json.loads(said.stdout)["loggedIn"]
        except (SmartForkError, OSError, ValueError, KeyError, TypeError, RecursionError):
            return Standing(None)
        return Standing(logged_in if isinstance(logged_in, bool) else None)
