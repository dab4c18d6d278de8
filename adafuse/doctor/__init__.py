"""What would go wrong on this machine, and with some models, found without loading weights."""
