"""The broker process: the socket loop, the handlers, the clocked housekeeping."""
