"""GPUs: datasheet facts, and fitted efficiencies apart from them."""
