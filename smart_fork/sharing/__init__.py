"""A session as it is shared: canonical records, their digests, segments of them, and what travels between machines."""
