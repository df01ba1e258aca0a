"""Another commit's tree and this one: what one wrote the other reads, and both work in one group."""
