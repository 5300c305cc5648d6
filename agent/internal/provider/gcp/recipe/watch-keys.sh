#!/bin/sh
# Keeps a file as an item of this machine's metadata says, from when the item is there. The metadata server holds each
# request until the item changes, so that a change is here within a second. An item that is gone, or empty, changes
# nothing: the last keys stay.
#
# usage: watch-keys.sh ITEM FILE
set -u
item=$1
file=$2
url="${SHOAL_METADATA:-http://169.254.169.254}/computeMetadata/v1/instance/attributes/$item"
# Beside the directory that the proxy sees, and on the same filesystem: the proxy never sees half a file.
new="$(dirname "$(dirname "$file")")/.$item"
etag=0

while :; do
	if curl --silent --fail --max-time 330 --header 'Metadata-Flavor: Google' --dump-header "$new.head" --output "$new" \
		"$url?wait_for_change=true&timeout_sec=300&last_etag=$etag" && [ -s "$new" ]; then
		etag=$(tr -d '\r' <"$new.head" | sed -n 's/^[Ee][Tt][Aa][Gg]: *//p')
		etag=${etag:-0}
		if ! cmp -s "$new" "$file"; then
			chmod 0644 "$new" && mv -f "$new" "$file"
		fi
		# A server without etags answers at once, each time.
		[ "$etag" != 0 ] || sleep 5
	else
		sleep 5
	fi
done
