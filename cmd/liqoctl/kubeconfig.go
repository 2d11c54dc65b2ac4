package main

import (
	"maps"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// What a kubeconfig holds, for completion. One that cannot be read holds nothing.

func contextNames(loader clientcmd.ClientConfig) []string {
	return slices.Sorted(maps.Keys(contents(loader).Contexts))
}

func clusterNames(loader clientcmd.ClientConfig) []string {
	return slices.Sorted(maps.Keys(contents(loader).Clusters))
}

func userNames(loader clientcmd.ClientConfig) []string {
	return slices.Sorted(maps.Keys(contents(loader).AuthInfos))
}

func contents(loader clientcmd.ClientConfig) clientcmdapi.Config {
	raw, err := loader.RawConfig()
	if err != nil {
		return clientcmdapi.Config{}
	}
	return raw
}
