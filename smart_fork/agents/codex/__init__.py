"""Codex, no-envelope files of 2025 to 0.169 seen."""
