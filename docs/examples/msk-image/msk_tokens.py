"""Tokens for Amazon MSK with IAM: `kafka_oauth_callback: msk_tokens:token`; `sasl.oauthbearer.config` has the region.

The role comes from the environment, as AWS sets it for a service account (IRSA) or an instance.
"""

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider


def token(region: str) -> tuple[str, float]:
    """A token, and when it expires, in seconds since the epoch."""
    value, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    return value, expires_ms / 1000
