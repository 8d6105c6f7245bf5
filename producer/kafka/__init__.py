"""Publishing: topics, transactions, and the state that commits with the data."""
