"""Version of the package: the workspace's."""

__version__ = "0.1.0"
