"""Why a process does not move: what is read, the causes that it is held against, and what can be done."""
