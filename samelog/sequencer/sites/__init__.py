"""A cluster in more than one place: where this node is, how far sites are behind."""
