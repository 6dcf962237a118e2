"""What a privacy budget means: trade-offs between two hypotheses, and accounts of what is spent."""
