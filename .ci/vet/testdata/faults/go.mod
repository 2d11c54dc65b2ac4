module github.com/sluice-net/sluice/faults

go 1.26.3

require k8s.io/api v0.0.0

replace k8s.io/api => ./api
