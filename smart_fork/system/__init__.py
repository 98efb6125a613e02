"""Access to the machine: processes, versions, limits, files of others."""
