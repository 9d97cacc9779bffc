"""The members of the cluster: links between them, changes, and mutual repair."""
