module ramen.dev/e2e/cluster

go 1.26.0
