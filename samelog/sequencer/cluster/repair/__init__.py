"""Getting from peers what this node lacks."""
