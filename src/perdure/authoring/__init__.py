"""Authoring: how workflows and steps are written and registered; what happens in a turn lies in ``turns``."""
