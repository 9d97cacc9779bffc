"""Push, decided in pure code: the publisher's end and the node's end of a connection."""
