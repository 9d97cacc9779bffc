"""What is kept of one client: pure, told bytes and the time."""
