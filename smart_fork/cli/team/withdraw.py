"""Taking back what was shared, and seeing what was done with it."""

from __future__ import annotations
