"""Rows as messages: the encoder, and one reader for each form that a message may have."""
