"""Bytes to values and back. Pure: no broker, no store, no clock."""
