"""Qwen Code's login: a key in the environment or in its settings, or what its window has stored.

Seen with 0.24.4: ``security.auth.selectedType`` in its settings says what it logs in with. Without a key for that it
ends immediately ("Missing API key for …"); there is no command that says whether it is logged in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer.values import dicts_in, text_in
from smart_fork.agents.login import Login, is_variable, table

#: What each way to log in takes: any of the first logs it in, the others say whom it asks and what for.
_OPENAI = (("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_MODEL", "DASHSCOPE_API_KEY"))
_WAYS = {
    "openai-responses": _OPENAI,
    "anthropic": (("ANTHROPIC_API_KEY",), ("ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL")),
    "gemini": (("GEMINI_API_KEY",), ("GEMINI_MODEL",)),
    "vertex-ai": (
        ("GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),
    ),
}


class QwenLogin(Login):
    """See `Login`."""

    command = "qwen"

    def variables(self) -> tuple[str, ...]:
        settings = self.settings()
        keys, beside = _WAYS.get(_chosen(settings), _OPENAI)
        named = (name for models in table(settings, "modelProviders").values() for name in _named_in(models))
        return tuple(dict.fromkeys((*keys, *beside, *named)))

    def settled(self) -> frozenset[str]:
        return frozenset(table(self.settings(), "env"))

    def is_plain(self, env: Mapping[str, str]) -> bool:
        settings = self.settings()
        if _chosen(settings) == "qwen-oauth":
            return self.has_stored("oauth_creds.json")
        keys, _ = _WAYS.get(_chosen(settings), _OPENAI)
        around = {**table(settings, "env"), **env}
        return bool(_auth(settings).get("apiKey")) or any(around.get(key) for key in keys)


def _auth(settings: Mapping[str, Any]) -> dict[str, Any]:
    return table(table(settings, "security"), "auth")


def _chosen(settings: Mapping[str, Any]) -> str:
    """Return the login method in its settings."""
    return str(_auth(settings).get("selectedType"))


def _named_in(models: object) -> list[str]:
    """The variables that the models of one provider name."""
    return [name for model in dicts_in(models) if is_variable(name := text_in(model.get("envKey")))]
