"""Many cells, as steps that run in this process, in several, or on a cluster."""
