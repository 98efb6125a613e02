"""What became of the calls of an attack."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Tally:
    """What became of the calls of one tool, method or address: `refused` are errors that say what is wrong."""

    calls: int = 0
    ok: int = 0
    refused: int = 0
    errors: int = 0


@dataclass
class Report:
    """What came out. `violations` says each kind once, with the first call that had it."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    violations: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    cut: set[str] = field(default_factory=set)
    statuses: dict[int, int] = field(default_factory=dict)

    def note(self, name: str, outcome: str, wrong: str, call: str) -> None:
        """One call."""
        with self.lock:
            tally = self.tallies.setdefault(name, Tally())
            tally.calls += 1
            setattr(tally, outcome, getattr(tally, outcome) + 1)
            if wrong:
                self.violations.setdefault(f"{name}: {wrong}", call[:1000])

    def as_json(self) -> dict[str, Any]:
        """Figures and violations."""
        by = {name: asdict(self.tallies[name]) for name in sorted(self.tallies)}
        total = {key: sum(one[key] for one in by.values()) for key in ("calls", "ok", "refused", "errors")}
        more = {"statuses": dict(sorted(self.statuses.items()))} if self.statuses else {}
        return {"seconds": round(self.seconds, 1), "total": total, "by": by, **more, "violations": self.violations}
