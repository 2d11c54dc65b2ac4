package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/bundle"
	"github.com/sluice-net/sluice/admin/drops"
	"github.com/sluice-net/sluice/admin/progress"
	"github.com/sluice-net/sluice/admin/survey"
	"github.com/sluice-net/sluice/admin/trace"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/docs"
)

// readDrops asks a gateway's pod what it has dropped.
type readDrops func(context.Context, *access.Cluster, types.NamespacedName) ([]drops.Drop, error)

func (s *Server) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/state", s.serveState)
	mux.HandleFunc("GET /api/series", s.serveSeries)
	mux.HandleFunc("GET /api/past", s.work(s.reads, readLimit, s.servePast))
	mux.HandleFunc("GET /api/pods", s.work(s.reads, readLimit, s.servePods))
	mux.HandleFunc("GET /api/drops", s.work(s.reads, readLimit, s.serveDrops))
	mux.HandleFunc("GET /api/reasons", serveReasons)
	mux.HandleFunc("GET /api/trace", s.work(s.reads, readLimit, s.serveTrace))
	mux.HandleFunc("GET /api/object", s.work(s.reads, readLimit, s.serveObject))
	mux.HandleFunc("POST /api/doctor", s.work(s.long, 0, s.serveDoctor))
	mux.HandleFunc("POST /api/bundle", s.work(s.long, 0, s.serveBundle))
}

// badRequest is an error of the page or of the user, not of a cluster.
type badRequest struct{ error }

func refuse(format string, args ...any) error { return badRequest{fmt.Errorf(format, args...)} }

// work is a handler that asks clusters: few run at a time, and others wait for one of the places. A limit, if there is one,
// is how long it may take, so that a cluster that does not answer leaves its place to others.
func (s *Server) work(places chan struct{}, limit time.Duration, do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-r.Context().Done():
			return
		}
		if limit > 0 {
			ctx, cancel := context.WithTimeout(r.Context(), limit)
			defer cancel()
			r = r.WithContext(ctx)
		}
		err := do(w, r)
		switch bad := (badRequest{}); {
		case errors.As(err, &bad):
			fail(w, http.StatusBadRequest, err)
		case err != nil:
			fail(w, http.StatusBadGateway, err)
		}
	}
}

// serveState: ?sequence is that of the state that the page has.
func (s *Server) serveState(w http.ResponseWriter, r *http.Request) {
	state := *s.watch.current()
	if r.URL.Query().Get("sequence") == strconv.FormatUint(state.Sequence, 10) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	state.Version, state.Interval, state.Past = s.config.Version, s.config.Interval.Milliseconds(), len(s.config.Prometheus) > 0
	send(w, state, maxStateText, maxState)
}

// serveSeries: ?end is its key, ?since the last time that the page has, in milliseconds.
func (s *Server) serveSeries(w http.ResponseWriter, r *http.Request) {
	since, _ := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64) // else all
	answer(w, s.watch.series(r.URL.Query().Get("end"), time.UnixMilli(since)))
}

// index is the place of the cluster that ?cluster, or another parameter, names.
func (s *Server) index(r *http.Request, parameter string) (int, error) {
	i, err := strconv.Atoi(r.URL.Query().Get(parameter))
	if err != nil || i < 0 || i >= len(s.config.Clusters) {
		return 0, refuse("%s: no such cluster", parameter)
	}
	return i, nil
}

// named is a cluster under the name that it has where two clusters are worked on.
func (s *Server) named(i int, name string) *access.Cluster {
	c := *s.config.Clusters[i]
	c.Name = name
	if name == access.Remote {
		c.NamespaceGiven = false // that is about the local one
	}
	return &c
}

// place is where a cluster with an ID is among those that were named.
func (s *Server) place(id string) (int, bool) {
	i := slices.IndexFunc(s.watch.current().Clusters, func(c Cluster) bool { return c.Named && c.ID == id && id != "" })
	return i, i >= 0
}

// peer reads ?cluster and ?peer, the ID of one of its peers.
func (s *Server) peer(r *http.Request) (int, *survey.Peer, error) {
	i, err := s.index(r, "cluster")
	if err != nil {
		return 0, nil, err
	}
	read := s.watch.surveyOf(i)
	if read == nil {
		return 0, nil, errors.New("the cluster has not been read yet: try again in a moment")
	}
	id := r.URL.Query().Get("peer")
	if p := read.Peer(id); p != nil {
		return i, p, nil
	}
	return 0, nil, refuse("the cluster has no peer %q", id)
}

// maxShownPods is how many pods a page can choose from.
const maxShownPods = 500

// shownPod is a pod to choose.
type shownPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	IP        string `json:"ip,omitempty"`
}

// servePods lists running pods with addresses of their own.
func (s *Server) servePods(w http.ResponseWriter, r *http.Request) error {
	i, err := s.index(r, "cluster")
	if err != nil {
		return err
	}
	c := s.config.Clusters[i]
	list, err := c.Clientset.CoreV1().Pods("").List(r.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running", Limit: maxShownPods})
	if err != nil {
		return c.Explain("read Pods", err)
	}
	out := struct {
		Pods []shownPod `json:"pods"`
		More bool       `json:"more"`
	}{Pods: []shownPod{}, More: list.Continue != ""}
	for k := range list.Items {
		p := &list.Items[k]
		if !p.Spec.HostNetwork && p.Status.PodIP != "" {
			out.Pods = append(out.Pods, shownPod{p.Namespace, p.Name, p.Spec.NodeName, p.Status.PodIP})
		}
	}
	answer(w, out)
	return nil
}

// maxShownDrops is how many of an answer are shown, the latest.
const maxShownDrops = 500

// serveDrops asks the gateway of a cluster for a peer.
func (s *Server) serveDrops(w http.ResponseWriter, r *http.Request) error {
	i, p, err := s.peer(r)
	if err != nil {
		return err
	}
	if p.Gateway == nil || p.Gateway.Active() == nil {
		return errors.New("no pod of this gateway is active")
	}
	pod := p.Gateway.Active()
	all, err := s.dropped(r.Context(), s.config.Clusters[i], types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b drops.Drop) int { return b.Time.Compare(a.Time) })
	type shown struct {
		drops.Report
		Text string `json:"text"`
	}
	out := []shown{}
	for _, d := range all[:min(len(all), maxShownDrops)] {
		out = append(out, shown{drops.NewReport("", p.ID, d), d.String()})
	}
	answer(w, out)
	return nil
}

// serveReasons sends the documentation about reasons for drops, as Markdown.
func serveReasons(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(docs.Troubleshooting(drops.Section))) // the page may be gone
}

// live is how long packets are watched for a page.
const live = 5 * time.Second

// serveTrace follows a packet from ?cluster's pod ?from, "namespace/name", to the
// address ?to with or without a port, or to the pod ?to of cluster ?toCluster and ?port.
// With ?live packets are watched for a while.
func (s *Server) serveTrace(w http.ResponseWriter, r *http.Request) error {
	i, err := s.index(r, "cluster")
	if err != nil {
		return err
	}
	read := s.watch.surveyOf(i)
	if read == nil {
		return errors.New("the cluster has not been read yet: try again in a moment")
	}
	q := r.URL.Query()
	o := trace.Options{Local: s.named(i, access.Local)}
	if o.From, err = podName(q.Get("from")); err != nil {
		return err
	}
	if q.Get("toCluster") == "" {
		if o.To, o.Port, err = addressOf(q.Get("to")); err != nil {
			return err
		}
	} else {
		j, err := s.index(r, "toCluster")
		if err != nil {
			return err
		}
		if o.To, err = s.podAddress(r.Context(), read, j, q.Get("to")); err != nil {
			return err
		}
		if port := q.Get("port"); port != "" {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return refuse("%q is not a port number", port)
			}
			o.Port = uint16(n)
		}
	}
	if q.Get("live") != "" {
		o.Live = live
	}
	out := struct {
		*trace.Way
		To netip.Addr `json:"to"`
		// Peer is the ID of the cluster that the packet goes to, Remote its key if it was given.
		Peer   string `json:"peer,omitempty"`
		Remote string `json:"remote,omitempty"`
	}{To: o.To}
	if p, _ := trace.PeerFor(read, o.To); p != nil {
		out.Peer = p.ID
		if j, known := s.place(p.ID); known {
			o.Remote, out.Remote = s.named(j, access.Remote), strconv.Itoa(j)
		}
	}
	if out.Way, err = s.follow(r.Context(), o); err != nil {
		return err
	}
	answer(w, out)
	return nil
}

func podName(text string) (n types.NamespacedName, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return n, refuse("%q is not a pod: write NAMESPACE/POD", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func addressOf(text string) (netip.Addr, uint16, error) {
	if at, err := netip.ParseAddrPort(text); err == nil && at.Addr().Zone() == "" {
		return at.Addr().Unmap(), at.Port(), nil
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil || a.Zone() != "" {
		return a, 0, refuse("%q is not an address: write ADDRESS or ADDRESS:PORT, such as 10.71.2.20:443 or [fd00:71::20]:443", text)
	}
	return a.Unmap(), 0, nil
}

// podAddress is the address that a pod of cluster j has in the cluster that was read, in
// the family of its own first address.
func (s *Server) podAddress(ctx context.Context, read *survey.Cluster, j int, pod string) (netip.Addr, error) {
	name, err := podName(pod)
	if err != nil {
		return netip.Addr{}, err
	}
	c := s.config.Clusters[j]
	var p *corev1.Pod
	if p, err = c.Clientset.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}); err != nil {
		return netip.Addr{}, c.Explain("read Pod "+name.String(), err)
	}
	a, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil {
		return a, fmt.Errorf("pod %s has no address yet", name)
	}
	there := s.watch.surveyOf(j)
	if there == nil {
		return a, errors.New("the other cluster has not been read yet: try again in a moment")
	}
	here, err := addressHere(read.Peer(there.Installation.ClusterID), a)
	if err != nil {
		return a, fmt.Errorf("pod %s cannot be reached from this cluster: %w", name, err)
	}
	return here, nil
}

// examineTimeout bounds an examination.
const examineTimeout = 3 * time.Minute

// maxTelling is how many findings are shown beside a peering; the doctor's page has all.
const maxTelling = 5

// serveBundle sends an archive about the peering of ?cluster with ?peer, or about the
// cluster alone.
func (s *Server) serveBundle(w http.ResponseWriter, r *http.Request) error {
	i, err := s.index(r, "cluster")
	if err != nil {
		return err
	}
	peer := r.URL.Query().Get("peer")
	clusters := s.pair(i, peer)
	now := time.Now()
	o := bundle.Options{Version: s.config.Version, Time: now, Findings: func(ctx context.Context) (any, error) {
		return s.examine(ctx, s.doctorOptions(clusters, peer), nil)
	}}
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("X-Filename", bundle.Folder(now)+".tar.gz")
	if _, err := s.pack(r.Context(), w, o, func(progress.Event) {}, clusters...); err != nil {
		// The answer has begun: it must not look complete.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// maxYAML is how much of an object is shown, maxValue how much of one text in it.
const (
	maxYAML  = 64 << 10
	maxValue = 1 << 10
)

// viewable are the kinds that can be shown. None holds a secret.
var viewable = map[string]func() client.Object{
	"Configuration":         func() client.Object { return new(networkingv1beta1.Configuration) },
	"GatewayServer":         func() client.Object { return new(networkingv1beta1.GatewayServer) },
	"GatewayClient":         func() client.Object { return new(networkingv1beta1.GatewayClient) },
	"Connection":            func() client.Object { return new(networkingv1beta1.Connection) },
	"PublicKey":             func() client.Object { return new(networkingv1beta1.PublicKey) },
	"InternalNode":          func() client.Object { return new(networkingv1beta1.InternalNode) },
	"InternalFabric":        func() client.Object { return new(networkingv1beta1.InternalFabric) },
	"FirewallConfiguration": func() client.Object { return new(networkingv1beta1.FirewallConfiguration) },
	"RouteConfiguration":    func() client.Object { return new(networkingv1beta1.RouteConfiguration) },
	"IP":                    func() client.Object { return new(ipamv1alpha1.IP) },
	"Network":               func() client.Object { return new(ipamv1alpha1.Network) },
}

// serveObject shows ?object, "Kind namespace/name" or "Kind name", as YAML.
func (s *Server) serveObject(w http.ResponseWriter, r *http.Request) error {
	i, err := s.index(r, "cluster")
	if err != nil {
		return err
	}
	c := s.config.Clusters[i]
	kind, name, _ := strings.Cut(r.URL.Query().Get("object"), " ")
	create, known := viewable[kind]
	if !known {
		return refuse("objects of kind %q cannot be shown", kind)
	}
	key := types.NamespacedName{Name: name}
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		key = types.NamespacedName{Namespace: namespace, Name: rest}
	}
	o := create()
	if err := c.Client.Get(r.Context(), key, o); err != nil {
		return c.Explain("read "+kind+" "+name, err)
	}
	o.SetManagedFields(nil)
	if gvk, err := apiutil.GVKForObject(o, c.Client.Scheme()); err == nil { // what is read has none
		o.GetObjectKind().SetGroupVersionKind(gvk)
	}
	text, err := objectText(o)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text))
	return nil
}

// objectText is an object as YAML, with every text in it cut.
func objectText(o client.Object) (string, error) {
	raw, err := bounded(o, maxValue, maxAnswer)
	if err != nil {
		return "", err
	}
	out, err := yaml.JSONToYAML(raw)
	if len(out) > maxYAML {
		out = append(out[:maxYAML], "\n# ... truncated\n"...)
	}
	return string(out), err
}
