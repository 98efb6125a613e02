"""The part of docs/explanation/benchmarks.md about which earlier session knew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .report import lines

TEXT = """\
Asked are the first prompts of sessions in public repositories that keep their agents' sessions in git, as
typed. Right are the earlier sessions that wrote the lines which these sessions went on to change. History
is played in order. [The README][which] has the rules and the steps for your own clone.
[The JSON](benchmarks/which_session.json) has the answers and places of each question.

The ranking was fitted with these repositories among others: the weight of files and names (`work`), and the
scores. The other tools have no such weights.

The last table shows harm: what happened in other projects is asked where no session can know it. Projects
with a number are the largest ones of a collection of real sessions.

[which]: https://github.com/smart-fork/smart-fork/blob/main/benchmarks/which_session/README.md"""


def tables(figures: Mapping[str, Any]) -> list[str]:
    """Return what each tool finds of what people typed."""
    return [TEXT, "\n".join(lines(figures))]
