module ramen.dev/e2e/cluster/gateway-api

go 1.26.0

// Its kinds are installed as they are (config/crd); nothing of it is compiled.
require sigs.k8s.io/gateway-api v1.6.3
