"""The command line: one file a command; each parses, wires and prints, nothing else."""
