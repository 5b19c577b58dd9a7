"""Webhook requests over HTTP: signing, SSRF guard, connection pools, verification of receivers."""
