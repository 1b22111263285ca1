"""The access decision for a request: whether the request's key permits the request."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from collections.abc import Iterable, Mapping

from service.api.access.audit import CLUSTER
from service.api.access.keys import Keys
from service.api.access.limits import Meters
from service.api.access.sites import Sites
from service.api.access.stores import Stores, stores_of
from service.core.access.key import Key, Limits, Scope, id_of, key_of
from service.core.access.tenant import SEPARATOR
from service.core.access.usage import KeyUsage
from service.core.clock import Clock, SystemClock
from service.core.cluster.settings import Role
from service.core.errors import Conflict, Forbidden, InvalidInput, Unauthorized
from service.core.settings import Auth, Settings

_logger = logging.getLogger(__name__)
_LOOK_S = 1.0  # for up to this long after a change of the keys, requests may still be checked against the old keys
_BEARER = b"bearer "
_HINT = "send the header Authorization: Bearer KEY; the octet command takes it from OCTET_KEY"

ANYBODY = "anybody"  # the caller's id if no key is required
# the path prefix that the cluster's key permits on a worker; the data plane checks the rest
_OF_CLUSTER = "/v2/repository/models/"


class Access:
    """Decides about every request, on one event loop. A decision takes about 2 µs.

    Keys are required if any key exists, or if other machines can reach the address; `Settings.auth` may override this.
    Once keys are required, this process requires keys until it ends, even if all keys are deleted.
    """

    def __init__(self, settings: Settings, clock: Clock | None = None, stores: Stores | None = None) -> None:
        """
        Args:
            stores: the stores to use; by default the files in the data folder.

        Raises:
            InvalidInput: the file of keys cannot be read, or the admin key is not a valid key.
        """
        self._clock = clock or SystemClock()
        self._stores = stores or stores_of(settings, clock=self._clock)
        self.keys = self._stores.ring(self._clock)
        self.sites = Sites(settings)
        self._meters = Meters(self._stores.usage, self._clock, settings.tenants)
        self._given = _given(settings, self._clock)
        self._common = _common(settings, self._clock)
        self._cluster_key = settings.key_of_cluster.encode() if settings.role is Role.WORKER else b""
        self._auth = settings.auth
        self._requires_key = self._auth is Auth.ON or (self._auth is Auth.AUTO and not is_loopback(settings.host))
        self._read()

    @property
    def requires_key(self) -> bool:
        """True if requests need a key."""
        return self._requires_key

    def requires_key_now(self) -> bool:
        """Returns `requires_key` after reading changed keys, for callers that do not check every request."""
        if self._clock.monotonic_s() >= self._look_at_s:
            self._look_again()
        return self._requires_key

    def identify(self, authorization: bytes | None, *needed: Scope) -> Key | None:
        """Identifies the API key of a request. Returns None if no key is required.

        Args:
            authorization: the value of the request's Authorization header.
            needed: the key needs at least one of these scopes; an error message suggests the first.

        Raises:
            Unauthorized: the header contains no key, or the key is unknown or revoked.
            Forbidden: the key has none of these scopes.
        """
        if self._clock.monotonic_s() >= self._look_at_s:
            self._look_again()
        if not self._requires_key:
            return None
        key = self._find(authorization)
        if not key.allows(*needed):
            raise Forbidden(
                f"the key {key.id} lacks the scope {needed[0]}",
                hint=f"octet keys create NAME --scope {needed[0]} creates a key with this scope",
            )
        return key

    def tenant_of(self, who: str) -> str:
        """Returns the tenant of the key with this id. Raises `Unauthorized` if the key no longer exists."""
        if who in (ANYBODY, CLUSTER):
            return ""
        key = self._keys_by_id.get(who)
        if key is None:
            raise Unauthorized("the API key is not known, or was revoked")
        return key.tenant

    def is_of_cluster(self, key: bytes | None, path: str) -> bool:
        """Returns true if the request has the cluster's key and its path is permitted. Only the API of this worker's
        cluster sends requests with this key.
        """
        if key is None or not self._cluster_key or not path.startswith(_OF_CLUSTER):
            return False
        return hmac.compare_digest(key, self._cluster_key)

    def charge(self, key: Key | None) -> None:
        """Counts a request. Raises `RateLimited` or `QuotaExceeded`."""
        if key is not None:
            self._meters.charge(key)

    def admit(self, authorization: bytes | None, *needed: Scope) -> str:
        """Identifies the caller, and counts the request. Returns the key's id, or `ANYBODY`. Raises the errors of
        `identify` and `charge`.
        """
        key = self.identify(authorization, *needed)
        if key is None:
            return ANYBODY
        self._meters.charge(key)
        return key.id

    def create(self, name: str, scopes: Iterable[Scope], limits: Limits, tenant: str = "") -> tuple[Key, str]:
        """Creates a key as `KeyRing.create` does, for a request over the network.

        The first key makes the server require keys, and only an admin key can then create others.

        Raises:
            Conflict: the key would be the first one, but lacks the scope admin or is limited to a tenant.
        """
        chosen = frozenset(scopes)
        is_for_operators = Scope.ADMIN in chosen and not tenant
        if not self.requires_key_now() and self._auth is Auth.AUTO and not is_for_operators:
            raise Conflict(
                "the first key needs the scope admin: once a key exists, every request needs one, and no other "
                "key could create or revoke keys",
                hint="create a key with the scope admin first",
            )
        made = self.keys.create(name, chosen, limits, tenant)
        self.changed()
        return made

    def changed(self) -> None:
        """Must be called after this process changed the keys. Later requests then use the new keys."""
        self._look_at_s = 0.0

    def keys_with_use(self) -> list[KeyUsage]:
        """Returns the keys and their usage, including the internal keys that count a whole tenant's requests."""
        return [self._meters.usage_of(key) for key in (*self._keys_by_id.values(), *self._common.values())]

    def check_builds(self, tenant: str, count: int = 1) -> None:
        """Raises `QuotaExceeded` if the tenant may not start `count` more builds today."""
        self._meters.check_builds(tenant, count)

    def count_builds(self, tenant: str, count: int = 1) -> None:
        """Counts builds that a tenant started."""
        self._meters.count_builds(tenant, count)

    def count_used(self, counts: Mapping[str, int]) -> bool:
        """Counts requests that the data plane admitted, by key id. Returns true if at least one was counted."""
        for id, count in counts.items():
            if (key := self._keys_by_id.get(id) or self._common.get(id)) is not None:
                self._meters.add(key, count)
        return bool(counts)

    def save(self) -> None:
        """Exchanges the usage of keys with other replicas. May be called from any thread."""
        self._meters.save()

    @property
    def is_followed(self) -> bool:
        """True if the keys can change outside of this process, so that `refresh` must be called."""
        return self._stores.is_followed

    def refresh(self) -> None:
        """Reads keys that other replicas changed. May be called from any thread. May block on the database."""
        self._stores.refresh()

    def _find(self, authorization: bytes | None) -> Key:
        if authorization is None:
            raise Unauthorized("an API key is required", hint=_HINT)
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise Unauthorized("the header Authorization is not of the form Bearer KEY", hint=_HINT)
        text = authorization[len(_BEARER) :].strip(b" ")
        key = self._keys_by_id.get(id_of(text) or "")
        if key is None or not key.is_key(text):
            raise Unauthorized("the API key is not known, or was revoked", hint="octet keys list shows the valid ones")
        return key

    def _look_again(self) -> None:
        was_required = self._requires_key
        try:
            self._read()
        except (
            InvalidInput
            # The file of keys was created after the start and cannot be read; that it exists means keys are required.
        ) as error:
            _logger.error("%s; no key in it is accepted", error.message)
            self._requires_key = self._auth is not Auth.OFF
        if self._requires_key and not was_required:
            _logger.warning("there are API keys: from now on every request needs one")

    def _read(self) -> None:
        self._look_at_s = self._clock.monotonic_s() + _LOOK_S
        stored = self.keys.read()
        self._keys_by_id: Keys = {**stored, **self._given}
        self._requires_key = self._requires_key or (self._auth is Auth.AUTO and bool(self._keys_by_id))


def _common(settings: Settings, clock: Clock) -> Keys:
    """Returns one key for each tenant with a request quota. The data plane counts the tenant's requests under this key.

    The keys are revoked and have no secret, so that no request can use them.
    """
    quotas = {
        name: tenant_settings.requests_per_day
        for name, tenant_settings in settings.tenants.items()
        if tenant_settings.requests_per_day is not None
    }
    found = {}
    for tenant, per_day in quotas.items():
        id, now = tenant + SEPARATOR, clock.now()
        found[id] = Key(id, tenant, "", frozenset(), Limits(requests_per_day=per_day), now, revoked_at=now)
    return found


def check_exposure(settings: Settings, stores: Stores | None = None) -> None:
    """Checks that a server which other machines can reach requires a key. Must be called before the server accepts
    requests.

    Args:
        stores: the stores to use; by default the files in the data folder.

    Raises:
        InvalidInput: other machines can reach the address, but no valid key exists.
    """
    if settings.auth is Auth.OFF or settings.role is Role.WORKER or is_loopback(settings.host):
        return  # a worker's requests come from the API, which authenticates with the cluster's key
    stored = (stores or stores_of(settings)).keys.read().values()
    if not _given(settings, SystemClock()) and all(key.revoked_at for key in stored):
        raise InvalidInput(
            f"other machines can reach {settings.host}, and there is no API key",
            hint=f"octet keys create me --scope admin creates one, on the same data folder ({settings.data_dir}; in a "
            "container, on the same volume); OCTET_ADMIN_KEY sets one; --no-auth (OCTET_AUTH=off) "
            "allows every request",
        )


def is_loopback(host: str) -> bool:
    """Returns true if only this machine can reach `host`, an address or a name. Returns false for a name that cannot be
    resolved, because it could belong to any machine.
    """
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def _given(settings: Settings, clock: Clock) -> Mapping[str, Key]:
    """Returns the key in the setting OCTET_ADMIN_KEY, if one is set."""
    if settings.admin_key is None:
        return {}
    text = settings.admin_key.get_secret_value()
    key = key_of(text, "OCTET_ADMIN_KEY", [Scope.ADMIN], Limits(), clock.now())
    return {key.id: key}
