"""The whole way of a row, on real parts."""
