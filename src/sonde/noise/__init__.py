"""noise: what a monitoring agent costs the jobs beside it."""
