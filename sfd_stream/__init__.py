"""A live, certified low-rank sketch of a Kafka topic of sparse rows, by Sparse Frequent Directions."""

__version__ = "0.1.0"
