#!/usr/bin/env bash
# hack/images.sh build|load|target ...: Shoal's own images, without a registry; `hack/images.sh help` tells more.
exec "$(dirname "${BASH_SOURCE[0]}")/run-go" images "$@"
