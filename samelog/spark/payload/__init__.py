"""Turns the values of records into typed columns."""
