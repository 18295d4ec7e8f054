"""The sandbox: what workflow code may not do in a turn, and how each of these is answered or refused."""
