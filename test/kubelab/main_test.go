package kubelab

import (
	"os"
	"testing"

	"github.com/sluice-net/sluice/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }
