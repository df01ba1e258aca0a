"""What one row means against a sketch: scores with certified ranges, causes, and how extreme they are."""
