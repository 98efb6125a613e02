"""Synchronization of one person's sessions between machines, encrypted, over a ref of a private git remote."""
