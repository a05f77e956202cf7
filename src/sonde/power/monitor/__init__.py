"""What is heard of a power stack, live: history, metrics, pages, and whether the budget is held."""
