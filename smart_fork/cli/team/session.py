"""What a person does with the sessions of the team."""

from __future__ import annotations
