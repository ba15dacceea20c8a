"""Results as figures, one file a kind of result. Needs matplotlib: the extra `plot`."""
