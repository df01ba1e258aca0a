"""Records in, snapshots and dead letters out. Knows brokers, not sketches."""
