package survey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/admin/access"
)

const (
	// askAtOnce is how many gateways are asked at the same time: each request is a
	// connection of its own through the API server.
	askAtOnce = 8
	// askTimeout is how long one may take to answer.
	askTimeout = 10 * time.Second
)

// Names of containers and of the programs in them.
const (
	gatewayProgram = "gateway"
	fabricProgram  = "fabric"
)

// deniedReports is what a user lacks who may not run commands in pods.
const deniedReports = "the reports of gateways (pods/exec)"

// errNoActivePod is why a gateway cannot be asked.
var errNoActivePod = errors.New("no pod of it is active")

// AskGateways asks the active pods of all gateways, several at a time, and fills
// in Report or ReportErr of each. Those that do not answer, or are Liqo's, are Gaps, too.
func AskGateways(ctx context.Context, c *access.Cluster, s *Cluster) {
	var asked []*Gateway
	for i := range s.Peers {
		switch g := s.Peers[i].Gateway; {
		case g == nil:
		case g.Active() == nil:
			g.ReportErr = c.Errorf("%s: %w", g, errNoActivePod)
		case g.OfLiqo():
			g.ReportErr = c.Errorf("%s: %w", g, ErrOfLiqo)
		default:
			asked = append(asked, g)
		}
	}
	reports, errs := access.Parallel(asked, askAtOnce, func(g *Gateway) (*GatewayReport, error) {
		pod := g.Active()
		return ReadGateway(ctx, c, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	})
	for i, g := range asked {
		g.Report, g.ReportErr = reports[i], errs[i]
	}
	for i := range s.Peers {
		if g := s.Peers[i].Gateway; g != nil && g.ReportErr != nil && !g.silenceIsKnown() {
			gap := Gap{What: "the report of " + g.String(), Err: g.ReportErr}
			switch {
			case denied(g.ReportErr):
				gap.What = deniedReports
			case errors.Is(g.ReportErr, ErrOfLiqo):
				gap.Err = c.Errorf("%w", errGatewaysOfLiqo) // one line for all
			}
			s.Gaps = append(s.Gaps, gap)
		}
	}
}

// silenceIsKnown tells whether the state of the gateway's pods says better than
// ReportErr why there is no report.
func (g *Gateway) silenceIsKnown() bool {
	if errors.Is(g.ReportErr, errNoActivePod) {
		return true
	}
	pod := g.Active()
	return pod != nil && !pod.Ready && !denied(g.ReportErr)
}

// ReadGateway asks a gateway pod for its report.
func ReadGateway(ctx context.Context, c *access.Cluster, pod types.NamespacedName) (*GatewayReport, error) {
	return ask[GatewayReport](ctx, c, pod, gatewayProgram)
}

// ReadFabric asks the agent of a node, whose pod it is, for its report.
func ReadFabric(ctx context.Context, c *access.Cluster, pod types.NamespacedName) (*FabricReport, error) {
	return ask[FabricReport](ctx, c, pod, fabricProgram)
}

// ask runs the status command of a program in its container.
func ask[R any](ctx context.Context, c *access.Cluster, pod types.NamespacedName, program string) (*R, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := c.Output(ctx, pod, program, []string{program, "status", "-o", "json"})
	if err != nil {
		return nil, err
	}
	r := new(R)
	if err := decode(out, r); err != nil {
		return nil, c.Errorf("pod %s: the answer of '%s status' is not what this version understands: %w", pod, program, err)
	}
	return r, nil
}

func decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	return nil
}

// MayNotAsk tells whether the user may ask no gateway at all, as AskGateways
// found, and returns the Gap that says so.
func (c *Cluster) MayNotAsk() (Gap, bool) {
	for i := range c.Peers {
		if g := c.Peers[i].Gateway; g != nil && g.Report != nil {
			return Gap{}, false
		}
	}
	i := slices.IndexFunc(c.Gaps, func(g Gap) bool { return g.What == deniedReports })
	if i < 0 {
		return Gap{}, false
	}
	return c.Gaps[i], true
}
