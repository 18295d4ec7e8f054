"""A sealed store: codecs and an offload of large payloads, before either database."""
