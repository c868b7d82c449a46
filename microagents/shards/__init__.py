"""Many runs that do one work side by side: batches of rows, the replies that they share, and one cap for all of them."""
