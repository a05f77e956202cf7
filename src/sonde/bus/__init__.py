"""The cost of a data-distribution bus: latency, fan-out, discovery, partitions, throughput, first messages, calls."""
