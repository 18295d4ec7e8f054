"""Type checkers find each wrong call of the interface, and know the type of each right one."""
