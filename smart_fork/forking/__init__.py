"""From what is asked for to a worker that lives."""
