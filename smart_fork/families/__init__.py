"""Branches of sessions, and who descends from whom."""
