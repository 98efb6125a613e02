"""Shared sessions: canonical records, their digests, segments, and the messages between client and server."""
