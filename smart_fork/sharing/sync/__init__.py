"""Synchronization of one person's sessions between machines: encrypted, over a ref in a private git remote."""
