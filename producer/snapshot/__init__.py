"""Reading splits without locks: low watermark, rows, high watermark, one Kafka transaction."""
