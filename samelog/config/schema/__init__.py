"""From annotated values to everything that follows from them: reading, writing, documentation."""
