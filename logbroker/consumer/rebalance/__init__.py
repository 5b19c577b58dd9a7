"""Algorithm 1 of the paper: which partitions a consumer owns, and how it claims them; pure."""
