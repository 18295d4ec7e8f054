"""Connections are cut around the COMMIT of their batches; nothing may be lost, and nothing counted twice."""
