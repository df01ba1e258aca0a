"""`run --workers N`: several workers on one machine, each a process, under one supervisor."""
