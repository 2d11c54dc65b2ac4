// Command metricsserver is the metrics-server of Kubernetes, for clusters of tests. It is a module of its own: nothing of it
// is part of what the project ships.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

func main() {
	if err := app.NewMetricsServerCommand(genericapiserver.SetupSignalHandler()).Execute(); err != nil {
		os.Exit(1) // it has said why
	}
}
