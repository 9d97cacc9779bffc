"""Drives one Raft group: its files, its replica, its snapshots, its proposals."""
