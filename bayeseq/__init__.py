"""Label sequences when labels are scarce, and know how far to trust each answer."""

__version__ = "0.1.0"
