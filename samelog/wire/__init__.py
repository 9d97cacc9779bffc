"""The replication protocol, pure: frames, messages, the states of a sender and a receiver."""
