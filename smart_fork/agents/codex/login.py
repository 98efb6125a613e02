"""Codex' login: what ``codex login`` has stored, or the variable that the settings of a provider name.

Seen with 0.169.0: ``codex login status`` ends with 0 where something is stored, be it in a keychain, and says "Not
logged in" else; of providers it knows nothing. One whose ``env_key`` is not set ends every turn with "Missing
environment variable".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer.values import dict_in
from smart_fork.agents.codex import HOME
from smart_fork.agents.login import Login, is_variable
from smart_fork.system.processes import Completed

_KEYS = ("CODEX_API_KEY", "OPENAI_API_KEY")
_BESIDE = ("OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT")
#: The provider that is meant where none is named.
_OWN = "openai"


class CodexLogin(Login):
    """See `Login`."""

    command = "codex login"
    status, listed = ("login", "status"), r"(?m)^\s+login\b"

    def variables(self) -> tuple[str, ...]:
        providers = _tables(_settings().get("model_providers"))
        named = (name for one in providers.values() for name in _named_in(one))
        return tuple(dict.fromkeys((*_KEYS, *_BESIDE, *named)))

    def required(self) -> tuple[str, ...]:
        return _required(*_provider())

    def is_plain(self, env: Mapping[str, str]) -> bool:
        name, provider = _provider()
        if required := _required(name, provider):
            return all(env.get(one) for one in required)
        if name != _OWN:  # one that needs no key, or that Codex brings with it
            return provider.get("requires_openai_auth") is not True
        return bool(env.get("CODEX_API_KEY")) or self.has_stored("auth.json")

    def answered(self, said: Completed) -> bool | None:
        if said.ok:
            return True
        return False if b"not logged in" in (said.stdout + said.stderr).lower() else None


def _settings() -> dict[str, Any]:
    try:
        written = (HOME.folder() / "config.toml").read_text("utf-8-sig")
        import tomllib  # most commands start nothing, and many a person has no such file

        return tomllib.loads(written)
    except (OSError, ValueError, RecursionError):
        return {}


def _provider() -> tuple[str, Mapping[str, Any]]:
    """The provider that the settings, or the profile in them that is used, name; and what they say of it."""
    said = _settings()
    profile = _tables(said.get("profiles")).get(str(said.get("profile")), {})
    name = profile.get("model_provider", said.get("model_provider", _OWN))
    return str(name), _tables(said.get("model_providers")).get(str(name), {})


def _required(name: str, provider: Mapping[str, Any]) -> tuple[str, ...]:
    """The variables without which this provider does not work."""
    key = str(provider.get("env_key") or "")
    return (key,) if name != _OWN and is_variable(key) else ()


def _tables(value: object) -> Mapping[str, Mapping[str, Any]]:
    return {name: one for name, one in value.items() if isinstance(one, dict)} if isinstance(value, dict) else {}


def _named_in(provider: Mapping[str, Any]) -> list[str]:
    """The variables that a provider's settings name."""
    named = (provider.get("env_key"), *dict_in(provider.get("env_http_headers")).values())
    return [one for one in named if is_variable(one)]
