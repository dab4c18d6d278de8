"""What fused decoding costs, beside what the models cost alone: all in one run, on one machine."""
