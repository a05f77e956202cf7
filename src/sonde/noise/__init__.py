"""noise: the cost of a monitoring agent for the jobs on the same nodes."""
