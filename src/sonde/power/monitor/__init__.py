"""The live view of a power stack: history, metrics, pages, and whether the budget is held."""
