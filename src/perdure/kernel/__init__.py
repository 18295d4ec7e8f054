"""Pure values and rules: no await, no clock, no SQL, no logging."""
