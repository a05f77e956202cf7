"""What a data-distribution bus costs: latency, fan-out, discovery, partitions, throughput, first messages, calls."""
