"""``[team]`` as it is written. Importing it takes a tenth of a second, for pydantic."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints

Text = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


class SharingSection(BaseModel):
    """See `smart_fork.team.settings.Sharing`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    never: Texts = ()
    redact: Texts = ()
    allow: Texts = ()
    auto_fork: bool = False
