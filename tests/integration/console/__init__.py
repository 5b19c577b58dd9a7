"""Tests of the console in a browser; a package, so that the browser is gone when they are over."""
