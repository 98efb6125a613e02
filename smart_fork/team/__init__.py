"""The team feature: its commands, client and server share sessions between people.

No module outside this package imports it. The classes below define options that several commands have.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from indexer.lazy_compilation import dataclass
from smart_fork.agents.request_fields import said
from smart_fork.display_text import printable
from smart_fork.errors import Usage
from smart_fork.sharing import canonical

if TYPE_CHECKING:
    from indexer.transcripts.model import AgentName
    from smart_fork.team.wire import SessionChange, Visibility


@dataclass(frozen=True, slots=True)
class SharedDescription:
    """The options with a shared session's title, tags, summary and visibility (public or private)."""

    title: str | None = said(help="Title.")
    tags: str | None = said(help="Tags, separated by commas.")
    summary: str | None = said(help="Summary in a few sentences.")
    private: bool = said(bool, default=False, help="Only you can read it. The default.")
    public: bool = said(bool, default=False, help="All members of the project can read it.")

    @property
    def visibility(self) -> Visibility | None:
        """The visibility that the user chose (public or private), or `None`."""
        return "public" if self.public else "private" if self.private else None

    def checked(self) -> SessionChange:
        """Return the description as the message for the server. Each tag occurs once.

        Raises:
            Usage: there are too many tags, or a text is too long.
        """
        from smart_fork.team.wire import SessionChange, valid_message

        tags = None if self.tags is None else [" ".join(printable(one).split()) for one in self.tags.split(",")]
        found = None if tags is None else tuple(dict.fromkeys(filter(None, tags)))
        if found is not None and len(found) > canonical.TAGS:
            raise Usage(f"--tags has {len(found)} of them: {canonical.TAGS} at most")
        texts = [("--title", self.title, canonical.TEXT), ("--summary", self.summary, canonical.SUMMARY)]
        for option, text, most in (*texts, *(("Each of --tags", tag, canonical.TEXT) for tag in found or ())):
            if text is not None and len(text) > most:
                raise Usage(f"{option} has {most} characters at most: this is {len(text)}")
        return valid_message(
            SessionChange, title=self.title, tags=found, summary=self.summary, visibility=self.visibility
        )


@dataclass(frozen=True, slots=True)
class PullOptions:
    """The options of commands that write a shared session as an agent's log on this machine.

    `platform` is the agent that gets the log; `None` means the session's own agent. `track` gives the log an alias.
    """

    alias: str | None = said(help="Alias on this machine.")
    platform: str | None = said(help="Agent for the copy. Default: the original agent.")
    into: Path | None = said(Path, help="Working directory here. Default: the project's root.")
    track: bool = True
    force: bool = False

    def for_agent(self, agent: AgentName) -> Self:
        """Return these options for a session of `agent`. A log that is converted for another agent gets no alias."""
        return replace(self, track=self.track and self.platform in (None, agent))


@dataclass(frozen=True, slots=True)
class PushRequest(SharedDescription):
    """A request to push the session `reference`, with a description of it.

    Without `reference`, push the newest session of the one agent in `platforms`; without both, the current alias's
    session.
    """

    images: bool = said(bool, default=False, help="Send images too. Secrets in them are not masked.")
    force: bool = said(bool, default=False, help="Proceed despite warnings.")
    reference: str | None = None
    platforms: tuple[AgentName, ...] = ()

    def __post_init__(self) -> None:
        self.checked()
