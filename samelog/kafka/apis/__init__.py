"""One module for each API key: which versions are served, and what is answered."""
