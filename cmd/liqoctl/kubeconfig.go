package main

import (
	"maps"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
)

// What a kubeconfig holds, for completion. One that cannot be read holds nothing.

func contextNames(loader clientcmd.ClientConfig) []string {
	raw, err := loader.RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Contexts))
}

func clusterNames(loader clientcmd.ClientConfig) []string {
	raw, err := loader.RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Clusters))
}

func userNames(loader clientcmd.ClientConfig) []string {
	raw, err := loader.RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.AuthInfos))
}
