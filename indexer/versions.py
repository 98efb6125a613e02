"""What the stored form of a session depends on: a log read by another version is read again."""

from __future__ import annotations

from indexer.masking.masked import VERSION as MASKS_VERSION

#: A reader whose fold changes raises this, so that kept states of the old form are not used.
READER_VERSION = 27
#: Raised when the same session would be cut into other chunks.
CHUNKER_VERSION = 7
#: Raised when the same session would be exported differently: every export is then rewritten.
EXPORT_VERSION = 2

VERSION = f"{READER_VERSION}.{CHUNKER_VERSION}.{MASKS_VERSION}.{EXPORT_VERSION}"
