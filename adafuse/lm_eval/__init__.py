"""`--model adafuse` of lm-evaluation-harness."""
