"""The real parts that tests start: brokers and stores, on loopback, each ended by its process id."""
