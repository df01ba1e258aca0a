"""Where checkpoints live: disk or object store behind one small contract."""
