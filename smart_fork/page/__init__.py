"""The page for people who would rather look: search, read, the families of sessions, start a fork."""
