"""Fixtures that the tests of search programs share."""

from __future__ import annotations

from tests.smart_fork.finding.scripted_qmd import knows

__all__ = ["knows"]  # a fixture, defined beside what it is made of
