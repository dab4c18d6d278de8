"""What is learned from development rows: gates (`gate_fitting`) and advice."""
