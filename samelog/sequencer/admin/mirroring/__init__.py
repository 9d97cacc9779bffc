"""Answers to sidecars that mirror topics, and to administrators about mirrors."""
