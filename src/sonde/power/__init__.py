"""power: a power budget, held over the bus."""
