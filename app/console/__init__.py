"""The operators' console: pages for people, on the API's own rules."""
