"""The running parts: the worker's loop, its supervisor, and what they show."""
