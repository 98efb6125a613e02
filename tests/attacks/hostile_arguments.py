"""Arguments for calls, made from their JSON schemas: some right, many hostile, some of the wrong type. Reproducible."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.attacks.home import LURE, Home

#: A shape that the log must mask, as it masks any secret.
SECRET = "ghp_" + "1aB2" * 9
LONG = 900_000


@dataclass
class Hostile:
    """Values for one client. Of every ten about four are valid, five hostile and of the right type, one anything."""

    home: Home
    chance: random.Random

    def __post_init__(self) -> None:
        """Collect the texts."""
        bait, own = self.home.bait[0], self.home.own
        self._texts = [
            *(str(path) for path in self.home.bait), f"../{bait.name}", "../" * 12 + "etc/passwd", "/etc/passwd", "/",
            "~", "~/..", "~root", "..", ".", "", " ", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%c0%af..", "....//....//e",
            f"file://{bait}", "file:///etc/passwd", f"{own[0]}/../{bait.name}", f"{own[0]}.jsonl", f"{own[0][:8]}*",
            "-", "--", "--help", "--dangerously-skip-permissions", "-rf", "--upload-pack=touch x", "-c core.pager=x",
            "\0", f"{own[0]}\0", "a\nb\r\nc", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07", "\ud800", "\udfff\ud800",
            "\u202e\u2028", "' OR 1=1 --", '"; DROP TABLE sessions; --', "%", "_", "*", '"', "NEAR(a b)", "a AND",
            "title:x", "NOT", "^", "(" * 300, "$(touch pwned)", "`touch pwned`", "; touch pwned", "| cat", "&& id",
            "${HOME}", "#{pane_id}", "%s%n%x", "{0.__class__}", "{{7*7}}", "${jndi:ldap://x}", "CON", "/dev/zero",
            "/proc/self/environ", "/dev/stdin", "\\\\server\\share", "a" * 300, "é" * 5000, "true", "null", "-1",
            "1e999", "9" * 5000, "match", SECRET, "\ufeff", "\uffff",
        ]  # fmt: skip

    def arguments(self, schema: dict[str, Any]) -> Any:
        """Of a tool. Half of them are right but for one parameter: so a call gets far before something is wrong."""
        if self.chance.random() < 0.02:
            return self.anything()
        named = schema.get("properties", {})
        required = schema.get("required", ())
        chosen = [name for name in named if self.chance.random() < (0.97 if name in required else 0.25)]
        right = self.chance.random() < 0.5
        if right:  # optional, but nothing is found without it
            chosen += [name for name in ("session_id", "message") if name in named and name not in chosen]
        wrong = self.chance.choice(chosen) if chosen and self.chance.random() < 0.8 else ""
        given = {
            name: self.right(name, named[name]) if right and name != wrong else self.value(named[name])
            for name in chosen
        }
        if self.chance.random() < 0.03:
            given[self.text()] = self.anything()
        return given

    def right(self, name: str, schema: dict[str, Any]) -> Any:
        """What a client that means well gives for the parameter of that name."""
        sessions, known = self.home.own[:6], self._known()
        if name in known and schema.get("items", {}).get("type") != "object":
            return known[name]
        for one in schema.get("anyOf", [schema]):
            if known_values := one.get("enum"):
                return "process" if "process" in known_values else self.chance.choice(known_values)
            if one.get("type") == "array" and one["items"].get("type") == "object":
                return [self.arguments(one["items"]) for _ in range(self.chance.choice([1, 1, 2]))]
            if one.get("type") in ("integer", "number"):
                return self.chance.choice([0, 1, 2, 3])
            if one.get("type") == "boolean":
                return self.chance.random() < 0.5
        return self.chance.choice(sessions) if "session" in name or name == "fork_from" else f"go on with the {LURE}"

    def _known(self) -> dict[str, Any]:
        worker, project = self.home.own[-1], str(self.home.project)
        return {
            "worker": worker, "workers": [worker, worker], "project_path": project, "cwd": project, "turns": "1-2",
            "agent_type": self.chance.choice(["claude", "codex", "both"]), "timeout": 0.1, "intent": f"the {LURE}",
            "collection": "claude-sessions", "tag": "upload", "worktree": False, "ids": [],
            "prompt": f"go on with the {LURE}",
        } if self.chance.random() < 0.9 else {}  # fmt: skip

    def value(self, schema: dict[str, Any]) -> Any:
        """Of one parameter."""
        if "anyOf" in schema:
            return self.value(self.chance.choice(schema["anyOf"]))
        if self.chance.random() < 0.08:
            return self.anything()
        if "const" in schema or "enum" in schema:
            known = schema.get("enum") or [schema["const"]]
            return self.chance.choice(known) if self.chance.random() < 0.8 else self.text()
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self.chance.choice(kind)
        make: dict[Any, Callable[[], Any]] = {
            "string": self.text,
            "integer": self.integer,
            "number": self.number,
            "boolean": lambda: self.chance.random() < 0.5,
            "null": lambda: None,
            "object": lambda: self.arguments(schema),
            "array": lambda: [self.value(schema.get("items", {})) for _ in range(self._length())],
        }
        return make.get(kind, self.anything)()

    def text(self) -> str:
        """A reference of the client's own, somebody else's, or something that no one should send."""
        lot = self.chance.random()
        if lot < 0.3:
            return self.chance.choice(
                [*self.home.own, LURE, f"what about the {LURE}", "both", "claude", "codex", "process"]
            )
        if lot < 0.5:
            return self._part(self.chance.choice(self.home.foreign))
        if lot < 0.505:
            return self.chance.choice("a/-\u20ac") * self.chance.choice([100_001, LONG])
        if lot < 0.6:
            return self.chance.choice(self._texts) + self.chance.choice([*self._texts, *self.home.foreign])
        return self.chance.choice(self._texts)

    def texts(self, *names: str) -> dict[str, Any]:
        """A text under each name."""
        return {name: self.text() for name in names}

    def integer(self) -> int:
        """A number, sensible or not."""
        return self.chance.choice([0, 1, 2, 3, 5, -1, -(10**9), 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30])

    def number(self) -> float:
        """As `integer`, or none."""
        return self.chance.choice([0.0, 0.5, 1.0, -1.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf])

    def anything(self) -> Any:
        """Of any type."""
        deep: Any = "end"
        for _ in range(self.chance.choice([3, 150, 600])):
            deep = [deep] if self.chance.random() < 0.5 else {"a": deep}
        some = [None, True, False, self.integer(), self.number(), self.text(), [], {}, [self.text()], deep]
        return self.chance.choice([*some, {self.text(): self.text()}, [[[]]] * 50])

    def _part(self, text: str) -> str:
        return text if self.chance.random() < 0.7 else text[: self.chance.choice([7, 8, 13])]

    def _length(self) -> int:
        return self.chance.choice([0, 1, 1, 1, 2, 4, 5, 200])
