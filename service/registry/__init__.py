"""Pushes artifacts to OCI registries, and pulls them."""

from service.registry.client import Registry
from service.registry.reference import Reference, parse_reference
from service.registry.transfer import Choose, pull, push

__all__ = ["Choose", "Reference", "Registry", "parse_reference", "pull", "push"]
