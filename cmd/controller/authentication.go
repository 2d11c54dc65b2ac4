package main

import (
	"crypto/x509"
	"fmt"
	"os"

	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/cmd/internal/daemon"
)

// systemCA says that consumers verify the API server by the authorities of their system.
const systemCA = "system"

// certificateAuthority is what consumers verify the API server by: what --api-server-ca says, else what this program
// does itself.
func certificateAuthority(flag string, cfg *rest.Config) ([]byte, error) {
	file := flag
	switch {
	case flag == systemCA:
		return nil, nil
	case flag == "" && (len(cfg.CAData) > 0 || cfg.CAFile == ""):
		return cfg.CAData, nil
	case flag == "":
		file = cfg.CAFile
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, daemon.Usagef("--api-server-ca: %v", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return text, nil
}
