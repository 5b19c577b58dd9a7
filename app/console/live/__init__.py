"""Open pages kept true: one look for all of a process, and to each page what is new to it."""
