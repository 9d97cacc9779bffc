"""What comes in from publishers and goes out to readers: checked, bounded, made durable."""
