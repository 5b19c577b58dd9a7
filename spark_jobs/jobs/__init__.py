"""The jobs, without their command lines."""
