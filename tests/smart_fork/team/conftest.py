"""The fixtures of tests that share sessions: a repository with sessions."""

from __future__ import annotations

import pytest


@pytest.fixture
def root(home):
    folder = home / "shop"
    folder.mkdir()
    return folder
