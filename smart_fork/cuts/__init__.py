"""What cuts are made of, whoever wrote the transcript: its lines, its snapshots, and what its agent says of it."""
