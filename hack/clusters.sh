#!/usr/bin/env bash
# hack/clusters.sh up|down|env|load|check ...: development clusters on kind; `hack/clusters.sh help` tells more.
exec "$(dirname "${BASH_SOURCE[0]}")/run-go" clusters "$@"
