"""What programs need of the machine: processes, versions, limits, files of others."""
