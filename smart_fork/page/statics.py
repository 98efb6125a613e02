"""The style sheets and scripts of the page, as they were when this program began; an upgrade puts others in place.

Their addresses tell their contents, so a browser asks for each once and not again with every page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

from starlette.responses import PlainTextResponse, Response

_TYPES = {
    "page.css": "text/css", "page.js": "text/javascript", "session.css": "text/css", "session.js": "text/javascript",
}  # fmt: skip
#: Of what stands at an address that tells its contents, and of what may be another file next time.
_FOR_EVER, _ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"


class StaticFile(NamedTuple):
    """One of them, and what tells it from its other versions."""

    content: bytes
    media_type: str
    version: str


def _read(name: str) -> StaticFile:
    content = files(__package__).joinpath("static", name).read_bytes()
    return StaticFile(content, _TYPES[name], blake2b(content, digest_size=8).hexdigest())


FILES: Mapping[str, StaticFile] = {name: _read(name) for name in _TYPES}
#: Their addresses need no token.
PUBLIC = tuple(f"/static/{name}" for name in FILES)


def address(name: str) -> str:
    """Where a browser finds this version of it."""
    return f"/static/{name}?v={FILES[name].version}"


def own_style() -> Mapping[str, str]:
    """The style sheets as they stand in a file that loads nothing, and what its policy knows them by."""
    text = "\n" + "".join(FILES[name].content.decode() for name in ("page.css", "session.css"))
    return {"text": text, "digest": base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}


def answer(name: str, version: str) -> Response:
    """The file of that name, to be kept where that version of it was asked for."""
    file = FILES.get(name)
    if file is None:
        return PlainTextResponse("no such file\n", 404)
    kept = _FOR_EVER if version == file.version else _ASK_AGAIN
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": kept}
    return Response(file.content, media_type=file.media_type, headers=headers)
