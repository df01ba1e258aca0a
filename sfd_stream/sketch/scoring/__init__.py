"""Scores rows against a sketch: scores with certified ranges, their causes, and p-values."""
