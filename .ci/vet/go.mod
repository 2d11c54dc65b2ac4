// The linter of this repository: .ci/lint builds it. A module of its own, so that what it needs is no
// dependency of ours.
module github.com/sluice-net/sluice/ci/vet

go 1.26.3

require (
	codeberg.org/polyfloyd/go-errorlint v1.9.0
	github.com/gordonklaus/ineffassign v0.2.0
	github.com/nishanths/exhaustive v0.15.0
	go-simpler.org/sloglint v0.12.0
	golang.org/x/tools v0.52.0
	honnef.co/go/tools v0.8.2
)

require (
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect
	github.com/ettle/strcase v0.2.0 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
