package main

import "testing"

func TestImageVersion(t *testing.T) {
	tests := []struct{ image, label, want string }{
		{"sluice/controller:v1.2.3", "v1.2.0", "v1.2.3"},
		{"sluice/controller:latest", "v1.2.0", "v1.2.0"},
		{"sluice/controller:latest", "", "latest"},
		{"sluice/controller", "", "latest"},
		{"registry:5000/sluice/controller", "", "latest"},
		{"registry:5000/sluice/controller:v1@sha256:abc", "", "v1"},
		{"sluice/controller@sha256:abc", "", "sha256:abc"},
		{"sluice/controller@sha256:abc", "v2", "v2"},
	}
	for _, tt := range tests {
		if got := imageVersion(tt.image, tt.label); got != tt.want {
			t.Errorf("%s, label %q: %s, want %s", tt.image, tt.label, got, tt.want)
		}
	}
}
