"""What would be sent, as a person sees it before it is: what, to whom, and what was taken out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap

from indexer.values import Value
from smart_fork.agents.facets import title_of
from smart_fork.agents.forms import HOME, ROOT
from smart_fork.team.outgoing import ONE, OPEN, Outgoing
from smart_fork.text.snippets import printable

#: Of many names, so many are listed.
_LISTED = 12
_SHOWN = 3
QUESTION = "Send?"
PUBLISH = "It is private. All members of the project will be able to read it. Publish?"


@dataclass(frozen=True, slots=True)
class Preview(Value):
    """What would be sent. Every text in it is masked."""

    server: str
    project: str
    visibility: str
    before: str
    title: str
    agent: str
    created: bool
    pushed_records: int
    bytes: int
    masked: Mapping[str, int]
    samples: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, int]
    files: tuple[str, ...]
    withheld: tuple[str, ...]
    left_off: str = ""

    @property
    def readers(self) -> str:
        """Who will be able to read it, in words."""
        return "all members of the project" if self.visibility == "public" else "you alone"

    def lines(self) -> Iterator[str]:
        """The same for a terminal."""
        what = "A new session" if self.created else "More of a session"
        yield f"{what} of {title_of(self.agent)}: {printable(self.title) or 'without a title'}"
        yield f"  to        {self.project} on {self.server}"
        yield f"  readable  by {self.readers}"
        yield f"  size      {_records(self.pushed_records)}, {_size(self.bytes)}"
        if self.files:
            yield f"  files     {_listed(self.files)}"
        if self.masked:
            yield f"  masked    {', '.join(f'{count} {kind}' for kind, count in sorted(self.masked.items()))}"
            for kind, samples in sorted(self.samples.items()):
                yield from (f"              {kind}: …{_line(sample)}…" for sample in samples[:_SHOWN])
        if self.withheld:
            yield f"  withheld  tool results from {_listed(self.withheld)}"
        if left_out := {what: number for what, number in self.left_out.items() if what != OPEN}:
            yield f"  dropped   {', '.join(starmap(_counted, sorted(left_out.items())))}"
        if self.left_off:
            yield f"  not sent  {self.left_off}"
        if not self.masked:
            yield "  masked    nothing looked like a secret; read it if you are not sure"

    def line(self) -> str:
        """The same in one line, beside others."""
        size = f"{_records(self.pushed_records)}, {_size(self.bytes)}"
        what = "new" if self.created else "more"
        masked = f", {sum(self.masked.values())} masked" if self.masked else ""
        off = f" (not sent: {self.left_off})" if self.left_off else ""
        title = printable(self.title) or "without a title"
        return f"{what:<4}  {title_of(self.agent):<11}  {self.visibility:<7}  {size}{masked}  {title}{off}"

    def questions(self) -> tuple[str, ...]:
        """What is asked, one after the other; each must be answered with yes. Nothing where nothing would change."""
        sends = bool(self.created or self.pushed_records)
        publishes = self.visibility == "public" != self.before and not self.created
        return (QUESTION,) * sends + (PUBLISH,) * publishes


def preview(
    out: Outgoing, server: str, project: str, visibility: str, *, created: bool, before: str = "private",
    title: str | None = None,
) -> Preview:  # fmt: skip
    """What would be sent, and who can read it then, and `before`. A `title` is shown as it would be sent."""
    return Preview(
        server,
        project,
        visibility,
        before,
        out.title if title is None else out.plain(title),
        out.session.agent,
        created,
        len(out.records),
        out.size,
        dict(out.masked),
        out.samples,
        dict(out.left_out),
        tuple(map(out.plain, out.files)),
        tuple(map(out.plain, out.withheld)),
        out.left_off,
    )


def _line(sample: str) -> str:
    return " ".join(printable(sample.replace(ROOT, ".").replace(HOME, "~")).split())


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(_line, names[:_LISTED])) + more


def _counted(what: str, number: int) -> str:
    return f"{number} {ONE.get(what, what) if number == 1 else what}"


def _records(number: int) -> str:
    return "1 record" if number == 1 else f"{number} records"


def _size(size: int) -> str:
    return f"{size} bytes" if size < 1_000 else f"{size / 1e3:.0f} kB" if size < 1_000_000 else f"{size / 1e6:.1f} MB"
