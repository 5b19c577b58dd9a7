"""Workers: processes that claim replays and deliver them."""
