"""What the collecting benchmarks share: the spans they send, the servers they start, the clients they measure with."""
