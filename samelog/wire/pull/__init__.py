"""Pull, decided in pure code: the sending end of a connection."""
