"""Sharing of sessions between machines: records, digests, copies and withdrawals, and the synchronization over git."""
