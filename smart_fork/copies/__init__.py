"""A session written again up to an earlier message, so that the real program can resume it."""
