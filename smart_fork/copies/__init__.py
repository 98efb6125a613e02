"""Copies of a session up to an earlier message, which the real program can resume."""
