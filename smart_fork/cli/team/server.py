"""The server of a team, and who its people are."""

from __future__ import annotations
