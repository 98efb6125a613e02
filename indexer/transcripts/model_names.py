"""Which models have answered in a session, as its log names them."""

from __future__ import annotations

from collections.abc import Iterable

from indexer.masking import Masked, mask

#: Different models remembered a session, and how much of the name of one.
MOST, CHARACTERS = 20, 100
#: What agents write in the place of a model that none was.
_NONE = ("<synthetic>", "unknown")


def with_model(known: Iterable[str], name: object) -> list[str]:
    """`known` with that one, where it names a model that is not among them, in the order of their first answers."""
    names = list(known)
    if isinstance(name, str) and (said := name.strip()[:CHARACTERS]) and said not in _NONE:
        return names if said in names or len(names) >= MOST else [*names, said]
    return names


def shown(names: Iterable[str]) -> tuple[Masked, ...]:
    """Their names, masked."""
    return tuple(map(mask, names))
