"""The HTTP routes, one factory per group: `build_router(backend)`."""
