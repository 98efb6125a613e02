"""What results can be narrowed by: agent, branch, age, what became of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from indexer.shapes import dataclass
from smart_fork.page.phrases import time_of
from smart_fork.retrieval.answer import Hit
from smart_fork.retrieval.results import outcome_in_words

#: Ages in days; what is older than the last has no upper bound.
_AGES = {"7": "last 7 days", "30": "last 30 days", "365": "last year", "older": "older"}
#: Branches that are offered.
_MOST_BRANCHES = 8


@dataclass(frozen=True, slots=True)
class FacetChoice:
    """One value to narrow by, as people read it; `by` is what an address then narrows by in all."""

    title: str
    chosen: bool
    by: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Facet:
    """One thing to narrow by; `without` is what an address narrows by without it, `None` where it does not."""

    title: str
    choices: tuple[FacetChoice, ...]
    without: Mapping[str, str] | None


def age_of(hit: Hit, now: datetime | None = None) -> str:
    """The youngest of the ages that a result is of."""
    then = time_of(hit.last_activity)
    if then is None:
        return "older"
    days = ((now or datetime.now(UTC)) - then).total_seconds() / 86_400
    return next((name for name in _AGES if name.isdigit() and days <= int(name)), "older")


def _is_of_age(hit: Hit, wanted: str) -> bool:
    ages = list(_AGES)
    age = age_of(hit)
    return age == wanted if wanted == "older" else age != "older" and ages.index(age) <= ages.index(wanted)


_NAMES: Mapping[str, tuple[str, Callable[[Hit, str], bool]]] = {
    "branch": ("Branch", lambda hit, wanted: (hit.git_branch or "") == wanted),
    "age": ("Age", _is_of_age),
    "outcome": ("Outcome", lambda hit, wanted: hit.outcome == wanted),
}


def chosen(asked: Mapping[str, str]) -> dict[str, str]:
    """What an address narrows by. What is not known is passed over."""
    found = {name: asked.get(name, "") for name in _NAMES}
    if found["age"] not in _AGES:
        found["age"] = ""
    return {name: value for name, value in found.items() if value}


def narrowed(hits: Sequence[Hit], by: Mapping[str, str]) -> tuple[Hit, ...]:
    """The results that are of all these."""
    return tuple(hit for hit in hits if all(_NAMES[name][1](hit, value) for name, value in by.items()))


def facets(hits: Sequence[Hit], by: Mapping[str, str]) -> tuple[Facet, ...]:
    """What these results differ in, and what is chosen already; nothing that all of them share."""
    branches = list(dict.fromkeys(hit.git_branch for hit in hits if hit.git_branch))[:_MOST_BRANCHES]
    outcomes = dict.fromkeys(hit.outcome for hit in hits if hit.outcome != "unknown")
    present = {age_of(hit) for hit in hits}
    ages = [name for name in _AGES if name in present]
    offered = {
        "branch": {name: name for name in branches},
        "age": {name: _AGES[name] for name in ages},
        "outcome": {name: outcome_in_words(name) for name in outcomes},
    }
    found = []
    for name, (title, _) in _NAMES.items():
        values = offered[name] | ({by[name]: offered[name].get(by[name], by[name])} if name in by else {})
        if len(values) > 1 or name in by:
            choices = (FacetChoice(said, by.get(name) == value, {**by, name: value}) for value, said in values.items())
            others = {other: value for other, value in by.items() if other != name}
            found.append(Facet(title, tuple(choices), others if name in by else None))
    return tuple(found)
