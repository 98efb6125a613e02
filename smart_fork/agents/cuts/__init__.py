"""The common parts of cuts for all agents: transcripts and their lines, the `Cutter` base, snapshots and titles."""
