"""Reading snapshots downstream."""
