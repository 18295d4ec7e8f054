"""A sealed store: codecs and an offload of large payloads, in front of either database."""
