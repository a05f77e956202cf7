"""Layer maps: which functions of which libraries belong to a layer, and what libraries export."""
