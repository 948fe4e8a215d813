"""What the machine can do."""
