"""Connections: TCP, mutual TLS, frames, deadlines."""
