"""Two web applications before the same workflow: FastAPI, which is async, and Flask, which is not."""
