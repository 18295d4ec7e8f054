"""Rules that alert: what they look at, whom they tell, and the verbs of people."""
