"""Finding: from an intent to the sessions that answer it."""
