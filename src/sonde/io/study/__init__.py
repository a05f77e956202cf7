"""Studies: I/O benchmarks over clusters, hints and places."""
