"""The campaign: everything that docs/reliability.md publishes, piece by piece: `make campaign`."""
