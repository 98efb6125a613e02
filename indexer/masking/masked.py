"""The type of a text without secrets, and what marks where they were."""

from __future__ import annotations

from typing import NewType

#: A text from which secrets were taken out.
Masked = NewType("Masked", str)
NOTHING = Masked("")

#: Raised whenever the output changes for the same input: all that was made of masked texts is then made again.
VERSION = 15

#: How a mask begins; behind it stand the kind of the secret and a bracket.
MARK = "[REDACTED:"
