"""A one-node Kubernetes without containers around it: real components in namespaces of their own."""
