package kubelab

import (
	"os"
	"testing"

	"github.com/sluice-net/sluice/deploy/e2e/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }
