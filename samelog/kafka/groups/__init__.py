"""The group coordinator: a pure core that decides, and a thin driver on the Raft leader."""
