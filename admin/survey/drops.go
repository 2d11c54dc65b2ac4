package survey

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/exec"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/drops"
)

const (
	// dropsTimeout is how long a gateway may take to answer.
	dropsTimeout = 15 * time.Second
	// maxDrops bounds an answer. Gateways keep a few hundred.
	maxDrops = 4096
)

// ReadDrops asks a gateway's pod for the drops that it has kept.
func ReadDrops(ctx context.Context, c *access.Cluster, pod types.NamespacedName) (all []drops.Drop, err error) {
	ctx, cancel := context.WithTimeout(ctx, dropsTimeout)
	defer cancel()
	out := &drops.Decoder{Each: func(d drops.Drop) error {
		if len(all) == maxDrops {
			return c.Errorf("pod %s: more than %d dropped packets in one answer", pod, maxDrops)
		}
		all = append(all, d)
		return nil
	}}
	err = c.Exec(ctx, pod, gatewayProgram, []string{gatewayProgram, "drops", "-o", "json"}, out)
	return all, DropsError(c, pod, err)
}

// DropsError says why a gateway did not tell of its drops.
func DropsError(c *access.Cluster, pod types.NamespacedName, err error) error {
	var exit exec.CodeExitError
	if errors.As(err, &exit) && strings.Contains(err.Error(), `unknown command "drops"`) {
		return c.Errorf("pod %s: this gateway is of an older version, which keeps no dropped packets", pod)
	}
	return err
}
