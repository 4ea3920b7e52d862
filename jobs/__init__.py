"""What is needed: pure. No network, no clock, no vendor names."""
