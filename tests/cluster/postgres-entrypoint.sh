#!/bin/bash
# Does the same with these variables as the entry point of the official image.
set -eu
export PATH=/usr/lib/postgresql/15/bin:$PATH
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  umask 077; mkdir -p "$PGDATA"
  initdb --encoding=UTF8 --locale=C.UTF-8 -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") --auth-host=scram-sha-256 --auth-local=trust >/dev/null
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -o "-c listen_addresses= -c unix_socket_directories=/var/run/postgresql" -w start >/dev/null
  [ "$POSTGRES_DB" = postgres ] || createdb -h /var/run/postgresql -U "$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
fi
exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
