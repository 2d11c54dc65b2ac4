package controlplanetest

import (
	_ "k8s.io/cri-streaming/pkg/streaming"
	_ "k8s.io/cri-streaming/pkg/streaming/remotecommand"
)
