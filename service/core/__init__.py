"""The domain: values that every other room speaks in. Imports nothing of `service` but itself."""
