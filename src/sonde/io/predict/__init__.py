"""What a traced program would take under other conditions."""
