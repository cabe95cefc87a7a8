"""The version, stated once: the build and both codecs read it from here."""

__version__ = "0.1.0"
