"""A voted endpoint: requests are forwarded as they came, and the reply that is sent back is elected among samples."""
