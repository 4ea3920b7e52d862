"""What happens: the only place where needs, offers, time and money meet."""

__version__ = "0.1.0"
