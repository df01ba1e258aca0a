"""Decisions, and the state they are about. Pure: time and answers come in as arguments."""
