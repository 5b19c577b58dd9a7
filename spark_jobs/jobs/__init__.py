"""What each job does, without its command line."""
