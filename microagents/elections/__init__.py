"""Elections: one micro-decision each. Their messages, stop rules, count, red flags and scaling laws."""
