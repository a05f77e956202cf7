"""A demonstration: a power stack of simulated nodes."""
