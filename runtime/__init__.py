"""What both halves share besides the contract: errors and the command line."""
