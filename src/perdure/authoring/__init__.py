"""Authoring: how workflows and steps are written, and the loop that gives a workflow's code its turns."""
