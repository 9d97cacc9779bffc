"""Certificates: the authority that issues them, and the PEM files that a process reads."""
