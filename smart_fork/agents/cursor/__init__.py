"""Cursor: its conversations are cut, and not found or forked."""
