"""Which model OpenCode works with: it goes on with the one that was asked last, so what it is told must name one.

What its settings say counts, then what a person has chosen last, then what it has been asked with last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from indexer.unchecked import dict_in, json_in, list_in
from smart_fork.agents.opencode.database import decoded, opened
from smart_fork.agents.opencode.home import database
from smart_fork.agents.opencode.settings import settings_folder

#: Settings are short; what is larger is not read.
_BYTES = 1 << 20
_NAMES = ("opencode.json", "config.json")
_NEWEST = "SELECT CAST(data AS BLOB) FROM message WHERE length(data) < 1048576 ORDER BY time_created DESC LIMIT 50"


def usual_model(directory: Path | None) -> Mapping[str, str] | None:
    """The provider and the model, as messages name them, in `directory`; `None` where nobody has said any."""
    places = [*([directory] if directory else []), settings_folder()]
    said = (_named(_read(folder / name).get("model")) for folder in places for name in _NAMES)
    return next((one for one in (*said, *_chosen(), *_asked()) if one), None)


def _named(model: object) -> Mapping[str, str] | None:
    provider, slash, name = model.partition("/") if isinstance(model, str) else ("", "", "")
    return _model({"providerID": provider, "modelID": name}) if slash else None


def _model(value: object) -> Mapping[str, str] | None:
    if not isinstance(value, Mapping):
        return None
    named = {name: value.get(name) for name in ("providerID", "modelID")}
    found = {name: one for name, one in named.items() if isinstance(one, str) and one not in ("", "unknown")}
    return found if len(found) == len(named) else None


def _chosen() -> Iterator[Mapping[str, str] | None]:
    folder = os.environ.get("XDG_STATE_HOME", "")
    state = Path(folder) if folder.startswith("/") else Path.home() / ".local/state"
    yield from map(_model, list_in(_read(state / "opencode/model.json").get("recent")))


def _asked() -> Iterator[Mapping[str, str] | None]:
    try:
        with opened(database()) as db:
            rows = [row[0] for row in db.execute(_NEWEST)]
    except OSError:
        return
    for row in rows:
        message, _ = decoded(row)
        yield _model((message or {}).get("model"))


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            return dict_in(json_in(stream.read(_BYTES)))
    except OSError:
        return {}
