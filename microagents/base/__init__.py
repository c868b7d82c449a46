"""What everything else stands on: errors, structured concurrency, messages, files, the code of users."""
