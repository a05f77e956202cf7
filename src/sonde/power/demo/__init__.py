"""A power stack of simulated nodes, brought up to be looked at."""
