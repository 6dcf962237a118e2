"""What strangers hand in for a board, and verifying it: hashes, sums, judging again, replaying."""
