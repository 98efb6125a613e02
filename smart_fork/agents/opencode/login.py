"""OpenCode's login: what ``opencode auth login`` has stored, a provider in its settings, or a provider's variable.

Seen with 1.18: it also answers without any of them, by models that it offers itself; nothing says that it could not.
"""

from __future__ import annotations

from smart_fork.agents.login import Login

#: The variables of the providers that most people have; it knows about a hundred.
_KEYS = (
    "OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY",
    "OPENROUTER_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY",
)  # fmt: skip
#: What says where its settings and sessions are, and what else is in its settings.
_BESIDE = ("OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "OPENCODE_CONFIG_CONTENT", "OPENCODE_DB", "XDG_CONFIG_HOME")


class OpenCodeLogin(Login):
    """See `Login`."""

    command = "opencode auth login"
    stored = "auth.json"
    keys, beside = _KEYS, _BESIDE
