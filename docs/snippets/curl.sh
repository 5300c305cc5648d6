#!/usr/bin/env bash
# curl.sh URL: fetches a page through a leased proxy. Needs curl and jq.
set -euo pipefail
url=$1
host=$(sed -E 's|^https?://([^/:]+).*|\1|' <<<"$url")
# The hub is not asked through a proxy. With --retry curl comes back when the hub's Retry-After says so.
hub() { curl -sS --fail-with-body --noproxy '*' --retry 5 --cacert "$SHOAL_CA" -H "Authorization: Bearer $SHOAL_TOKEN" "$@"; }

lease=$(hub "$SHOAL/v1/leases" -d '{"fleet":"crawl/news","target":"'"$host"'","ttl":"600s"}')
id=$(jq -r '.leases[0].leaseId' <<<"$lease")
outcome='{}'
trap 'hub -X DELETE "$SHOAL/v1/leases/$id" -d "$outcome" >/dev/null' EXIT

status=$(curl -sS -x "$(jq -r '.leases[0].proxyUrl' <<<"$lease")" -o page.html -w '%{http_code}' "$url") || true
case $status in
  000) outcome='{"outcome":{"kind":"PROXY_ERROR"}}' ;; # no answer at all; curl has said why
  403) outcome='{"outcome":{"kind":"BLOCKED"}}' ;;
  429) outcome='{"outcome":{"kind":"RATE_LIMITED"}}' ;;
  5??) outcome='{"outcome":{"kind":"TARGET_ERROR"}}' ;;
  *) outcome='{"outcome":{"kind":"OK"}}' ;;
esac
echo "$status through $(jq -r '.leases[0].exit' <<<"$lease")"
