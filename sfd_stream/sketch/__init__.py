"""Sparse Frequent Directions. Pure mathematics: numpy and scipy only; no clock, log, global randomness or I/O."""
