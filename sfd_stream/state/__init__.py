"""A partition's state, and the decisions about it. Pure: time and answers come in as arguments."""
