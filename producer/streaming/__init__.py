"""The binlog stream: reads changes, decides on them by the state of snapshots, and writes them with the offset."""
