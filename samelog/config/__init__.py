"""Configuration files of nodes and clients, rights, and certificates of a private authority."""
