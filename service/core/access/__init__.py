"""Access: API keys, tenants, and the use of limits and quotas."""
