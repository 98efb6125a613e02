"""A person at a client that shows forms."""

from __future__ import annotations

from typing import Any

import mcp_types as types


class Person:
    """Answers each form by its `number`-th choice, or by an action alone; keeps the forms."""

    def __init__(self, chooses: int | str) -> None:
        self.chooses = chooses
        self.forms: list[types.ElicitRequestFormParams] = []

    async def __call__(self, _context: Any, form: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        assert isinstance(form, types.ElicitRequestFormParams)
        self.forms.append(form)
        if self.chooses == "fail":
            return types.ErrorData(code=-32601, message="what is a form?")
        if isinstance(self.chooses, str) and self.chooses in ("decline", "cancel"):
            return types.ElicitResult(action=self.chooses)
        said = self.chooses if isinstance(self.chooses, str) else list(choices(form))[self.chooses]
        return types.ElicitResult(action="accept", content={"session": said})


def choices(form: types.ElicitRequestFormParams) -> dict[str, str]:
    """The choices of a form and their labels, in the words of whichever version of the protocol."""
    (field,) = form.requested_schema["properties"].values()
    if "oneOf" in field:
        return {one["const"]: one["title"] for one in field["oneOf"]}
    return dict(zip(field["enum"], field["enumNames"], strict=True))
