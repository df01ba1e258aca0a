"""Programs around the worker: inspect and repair checkpoints, plan sizes and topics, produce rows."""
