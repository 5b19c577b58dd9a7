"""Tests, by kind; `support` holds what several of them share, by subject."""
