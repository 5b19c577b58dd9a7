"""Tests of several parts together, with real servers."""
