"""What the simulators share: running many worlds, telling of a failure, making it smaller."""
