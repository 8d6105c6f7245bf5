"""What both halves share besides the contract: errors, configuration, command line, log and HTTP server."""
