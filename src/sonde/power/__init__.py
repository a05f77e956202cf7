"""power: a power budget for a cluster, enforced over the bus."""
