"""The worker: records in, a checkpointed and published sketch out, each row counted exactly once."""
