"""Jobs under a power budget: queue, schedule, resources, starting, steering, Slurm."""
