"""Session directories: the runs and inputs of one publisher, at its host and at nodes."""
