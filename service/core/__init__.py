"""The domain: values that all other packages use. It imports no other package of `service`."""
