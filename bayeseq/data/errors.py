"""The one error that reading, writing and checking data raises."""


class DataError(ValueError):
    """Data that cannot be used as it is; the message names the place and what to do."""
