"""Removing sessions, whole or in part."""
