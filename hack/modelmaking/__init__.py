"""Recipes for the small models of tests and demo, and the shelf they are kept on; driven by hack/models."""
