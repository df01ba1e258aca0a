"""Reads snapshots from their topic."""
