"""Moving house: takes over the place where a Debezium connector stopped, its topics go on without a snapshot."""
