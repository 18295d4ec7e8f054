"""Schedules: workflows that are started again and again, each occurrence once, however many workers there are."""

from perdure.authoring.schedule.definition import Schedule

__all__ = ["Schedule"]
