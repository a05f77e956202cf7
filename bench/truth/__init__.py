"""Whether what is wrong is named, and nothing else."""
