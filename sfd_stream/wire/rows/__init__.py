"""Rows on the wire: encoding, and one reader for each form that a message may have."""
