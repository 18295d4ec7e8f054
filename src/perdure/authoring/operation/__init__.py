"""Operations: one command for many processes, carried out by a durable process of the library's own."""
