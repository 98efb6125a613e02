"""The user's settings in ``<SMART_FORK_HOME>/config.toml``.

They are parsed without pydantic: every `find` reads them, and importing pydantic takes longer than the rest of its
start. A section is checked completely when it is read, and an unknown name is refused, because an ignored misspelled
setting would seem to be in effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from indexer.errors import next_step
from indexer.lazy_compilation import dataclass
from indexer.safe_files import state_home
from smart_fork.display_text import quoted, shown
from smart_fork.errors import Usage

#: The longest name, path or pattern in the file.
MAX_TEXT = 1_000
_EXAMPLES = {
    "": 'Such as: engine = "qmd", above the first [section].',
    "service": 'Such as: [service] projects = ["~/code/shop"].',
    "team": 'Such as: [team] never = ["~/private"], redact = ["ACME-[0-9]{6}"], allow = ["test-token-1"].',
}


def _key(default: Any, meaning: str) -> Any:
    """Return a dataclass field for a setting, with its default value and its meaning for people."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class TopLevel:
    """The settings of config.toml above its first section."""

    engine: str = _key("", "Search engine: builtin or qmd.")
    homes: tuple[str, ...] = _key((), "Further folders of agents, such as a second account's: VARIABLE=FOLDER each.")


@dataclass(frozen=True, slots=True)
class ServiceSection:
    """The settings of the section ``[service]`` in config.toml."""

    projects: tuple[str, ...] = _key((), "Folders of projects that every client of the service may search.")


@dataclass(frozen=True, slots=True)
class TeamSection:
    """The settings of the section ``[team]`` in config.toml: what is never shared, and what is masked."""

    never: tuple[str, ...] = _key((), "Sessions in these folders are never pushed.")
    redact: tuple[str, ...] = _key((), "Regular expressions of your own secrets, masked in every push.")
    allow: tuple[str, ...] = _key((), "Harmless texts that look like secrets. They are not masked.")
    auto_fork: bool = _key(default=False, meaning="Let agents fork sessions of teammates without asking.")


SECTIONS: Mapping[str, type[TopLevel | ServiceSection | TeamSection]] = {
    "": TopLevel,
    "service": ServiceSection,
    "team": TeamSection,
}
_Section = TypeVar("_Section", bound=TopLevel | ServiceSection | TeamSection)


def all_keys() -> Iterator[tuple[str, Field[Any]]]:
    """Yield each setting of config.toml, as the name of its section and its dataclass field."""
    return ((name, one) for name, kind in SECTIONS.items() for one in fields(kind))


def allowed_projects() -> list[str]:
    """Return the project folders that every client of the service may search."""
    return list(section(ServiceSection).projects)


def engine() -> str:
    """Return the name of the search engine in config.toml in lower case, or ""."""
    return section(TopLevel).engine.strip().lower()


def homes() -> tuple[str, ...]:
    """Return the further folders of agents' logs that config.toml names, each as "VARIABLE=FOLDER"."""
    return section(TopLevel).homes


def team() -> TeamSection:
    """Return the section ``[team]`` of config.toml, which says what may be shared."""
    return section(TeamSection)


def sharing_rules() -> TeamSection:
    """Return the section ``[team]`` of config.toml, with checked patterns and absolute paths.

    Raises:
        Usage: the section or a pattern is invalid.
    """
    found = team()
    for pattern in found.redact:
        try:
            empty = re.compile(pattern).fullmatch("")
        except re.error as error:
            raise Usage(f"[team] redact: {quoted(pattern)} is not a pattern: {error}", _EXAMPLES["team"]) from error
        if empty:
            raise Usage(f"[team] redact: {quoted(pattern)} matches the empty text", _EXAMPLES["team"])
    return replace(found, never=tuple(str(Path(one).expanduser().resolve()) for one in found.never))


def section(kind: type[_Section]) -> _Section:
    """Read a section of config.toml, or with `TopLevel` the settings above the first section.

    Raises:
        Usage: the file is no TOML, or has an unknown name or an invalid value.
    """
    settings = _settings()
    top = [one.name for one in fields(TopLevel)]
    _refuse_unknown(settings, [*top, *filter(None, SECTIONS)], "")
    name = next(name for name, one in SECTIONS.items() if one is kind)
    given = settings.get(name, {}) if name else {key: value for key, value in settings.items() if key in top}
    if not isinstance(given, dict):
        raise Usage(f"{file()}: {name} must be a section, not {shown(given)}", _EXAMPLES[name])
    return _checked(kind, given, name)


def _checked(kind: type[_Section], given: Mapping[str, Any], section: str) -> _Section:
    _refuse_unknown(given, [one.name for one in fields(kind)], section)
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in given.items():
        fits, allowed = _KINDS[types[name]]
        if not fits(value):
            where = f"[{section}] {name}" if section else name
            raise Usage(f"{file()}: {where} must be {allowed}, not {shown(value)}", _EXAMPLES[section])
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def _refuse_unknown(given: Mapping[str, Any], known: list[str], section: str) -> None:
    if unknown := [shown(name) for name in given if name not in known]:
        where = f" in [{section}]" if section else ""
        raise Usage(f"{file()}: unknown key {unknown[0]}{where}. Known: {', '.join(known)}", _EXAMPLES[section])


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT


#: For each type of a key, a check of a written value, and the type in words.
_KINDS: Mapping[Any, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str), "text"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    tuple[str, ...]: (
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        f"a list of texts of 1 to {MAX_TEXT} characters",
    ),
}


def file() -> Path:
    """Return the path of config.toml."""
    return state_home() / "config.toml"


def _settings() -> dict[str, Any]:
    try:
        written = file().read_text("utf-8")
        import tomllib  # most people have no such file

        return tomllib.loads(written)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Usage(f"{file()} cannot be read: {why}", next_step(error) or "Correct it, or remove it.") from error
