"""Parts of a cut that are the same for all agents: transcript lines, snapshots, and the `Cutter` protocol."""
