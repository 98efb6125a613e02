"""Sessions whose logs the agent has deleted, masked again: what masks them now knows secrets that an older one left."""

from __future__ import annotations

from contextlib import suppress

from indexer.chunks import LABELS, chained
from indexer.markdown import export_path, write_export
from indexer.masking import mask, mask_parts
from indexer.store.base import SessionRow, Store, Words


def mask_again(store: Store, session: SessionRow) -> bool:
    """Mask what is left of a session in the index and in its export. Whether the export is another one now.

    Names that its tools saw are let go of: nothing tells any more what stood around them. For whoever holds the index's
    lock.
    """
    placements = sorted(store.placements_of(session.row), key=lambda placement: placement.position)
    known = store.texts([placement.chunk for placement in placements])
    texts = mask_parts([known[placement.chunk] for placement in placements])
    said = dict.fromkeys(LABELS, "")
    for placement, text in zip(placements, texts, strict=True):
        said[placement.role] += text.removeprefix(LABELS[placement.role]) + "\n"
    names = (mask(session.title), mask(session.also_called))
    words = Words(names[0], said["user"], said["assistant"], said["action"], "", also_called=names[1])
    store.replace_texts(session.row, [*zip(chained(texts, session.root_id), texts, strict=True)], words)
    path = export_path(session.agent, session.session_id)
    with suppress(FileNotFoundError):
        return write_export(path, mask(path.read_text("utf-8", "replace")))
    return False
