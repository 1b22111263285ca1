"""The domain: values that all other packages use. Imports nothing of `service` but itself."""
