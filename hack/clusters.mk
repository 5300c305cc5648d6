# Clusters and images for development; included by the root Makefile, or used alone: make -f hack/clusters.mk kind-up

# How many member clusters, and nodes in each.
MEMBERS ?= 2
NODES ?= 1
# Clusters, their container network and their files are named by it; two prefixes live side by side.
PREFIX ?= shoal

clusters := $(dir $(lastword $(MAKEFILE_LIST)))

.PHONY: kind-up kind-down images clean-cache

kind-up: ## bring up a hub cluster and MEMBERS=2 member clusters of NODES=1 each, on kind
	@$(clusters)clusters.sh up --prefix $(PREFIX) --members $(MEMBERS) --nodes-per-member $(NODES)

kind-down: ## remove the clusters and all that came with them, but for the caches
	@$(clusters)clusters.sh down --prefix $(PREFIX)

images: ## build the container images of Shoal as archives, without a registry
	@$(clusters)images.sh build

clean-cache: ## remove what the clusters and images were built from (the next kind-up takes minutes)
	@$(clusters)clusters.sh clean
