"""The register of workers."""
