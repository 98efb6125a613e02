"""The figures as Markdown, for the terminal and for docs/explanation/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .figures import RATES

REPOSITORY = (
    "repository", "commit", "checkpoints", "sessions", "questions", "that nothing answers", "logs", "index",
    "index brought up to date", "answer",
)  # fmt: skip

#: What can speak: `find` does with a score of 0.5 or more, a hint at an error or before an edit.
WAYS = ("find", "recall", "hint")
#: Where no session can know it, each speaks in at most this share. What was asked in its own project ends so.
GOAL, OWN_END = 0.05, "of the same project"

Rate = Sequence[float] | None


def lines(told: Mapping[str, Any]) -> list[str]:
    """Return all tables."""
    found = [f"`{told['command']}`; 95 % intervals by bootstrap over the questions."]
    if "tools" in told:
        found += _played(told)
    if "harm" in told:
        found += ["", *_harm(told["harm"])]
    return found


def _played(told: Mapping[str, Any]) -> list[str]:
    return [
        "",
        *_table(REPOSITORY, map(_repository, told["repositories"]), right_from=3),
        "",
        *_table(("tool", "questions", *RATES), _rates(told, "all")),
        "",
        *_table(("tool", "plans: hit@1", "hit@5", "MRR", "typed: hit@1", "hit@5", "MRR"), _kinds(told)),
        "",
        *_table(("smart-fork minus BM25", *RATES),
                ([kind, *(_spread(of[name]) for name in RATES)] for kind, of in told["smart-fork minus BM25"].items())),
        "",
        _shown(told),
        "",
        *_table(("scores; forks of the best answer", ""),
                ([name, _cell(value)] for part in ("scores", "where") for name, value in told[part].items())),
        *(f"\nNot asked: {name} ({why})." for name, why in told["not asked"].items()),
    ]  # fmt: skip


def _harm(harm: Mapping[str, Any]) -> list[str]:
    """Return how often each way speaks, by what was asked and in which place, and where that is more than the goal."""
    sessions = {one["name"]: one["sessions"] for one in harm["places"]}
    rows = sorted(harm["speaks"], key=lambda one: (one["asked"].endswith(OWN_END), one["asked"]))
    above = [
        f"{one['asked']} in {one['in']} ({way} {one['spoken'][way] / one['times']:.1%})"
        for one in rows for way in one["spoken"]
        if not one["asked"].endswith(OWN_END) and one["spoken"][way] > GOAL * one["times"]
    ]  # fmt: skip
    return [
        *_table(
            ("asked", "in", "times", *(f"{way} speaks" for way in WAYS)),
            (
                [one["asked"], f"{one['in']} ({sessions[one['in']]} sessions)", str(one["times"]),
                 *(_part(one["spoken"].get(way), one["times"]) for way in WAYS)]
                for one in rows
            ), right_from=2,
        ),
        "",
        f"Above the goal of {GOAL:.0%}: {_several(above)}.",
    ]  # fmt: skip


def _part(count: int | None, of: int) -> str:
    return "-" if count is None else f"{count} ({count / of:.1%})"


def _shown(told: Mapping[str, Any]) -> str:
    """Say in which rates the interval of the difference is above zero."""
    ahead = told["smart-fork minus BM25"]["all"]
    shown = [name for name in RATES if ahead[name] and ahead[name][1] > 0]
    others = [name for name in RATES if name not in shown]
    return f"Shown to be better than BM25 (interval above zero): {_several(shown)}. Not shown: {_several(others)}."


def _several(names: Sequence[str]) -> str:
    return "; ".join(names) or "nothing"


def _repository(one: Mapping[str, Any]) -> list[str]:
    seconds = one["seconds"]
    return [
        one["name"], f"`{one['head'][:12]}`", f"`{one['checkpoints'][:12]}`", str(one["sessions"]),
        str(one["questions"]), str(one["questions that nothing answers"]), f"{one['logs, MB']} MB",
        f"{one['index, MB']} MB", *(f"{seconds.get(f'{step}, median', 0):.2f} s" for step in ("index", "answer")),
    ]  # fmt: skip


def _rates(told: Mapping[str, Any], kind: str) -> Iterable[list[str]]:
    for name, of in told["tools"].items():
        yield [name, str(of[kind]["questions"]), *(_spread(of[kind][rate]) for rate in RATES)]


def _kinds(told: Mapping[str, Any]) -> Iterable[list[str]]:
    for name, of in told["tools"].items():
        yield [name, *(_spread(of[kind][rate]) for kind in ("plan", "typed") for rate in RATES[:3])]


def _cell(value: object) -> str:
    if isinstance(value, list) or value is None:
        return _spread(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _spread(rate: Rate) -> str:
    if rate is None:
        return "-"
    mean, low, high = rate
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], right_from: int = 1) -> list[str]:
    rule = ["---" if number < right_from else "--:" for number in range(len(header))]
    return ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in (header, rule, *rows)]
