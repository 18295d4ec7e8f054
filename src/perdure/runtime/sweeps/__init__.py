"""One file for each way of getting stuck: what finds it, and the ordinary command that frees it."""
