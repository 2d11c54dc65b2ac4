package release

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-net/sluice/admin/access"
	"github.com/sluice-net/sluice/admin/progress"
	ipamv1alpha1 "github.com/sluice-net/sluice/api/ipam/v1alpha1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// balanced are several API servers behind a balancer, which gives each connection to the next of them. One is later than the
// others.
type balanced struct {
	t       *testing.T
	refused bool // what is waited for

	mu          sync.Mutex
	connections map[string]int // by the address of the client
	late        int            // how often the last server has answered as before
}

const (
	apiServers  = 3
	lateAnswers = 9
)

func (b *balanced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.connections[r.RemoteAddr]; again || r.ProtoMajor != 1 {
		b.t.Errorf("a second question by one connection, %s", r.Proto)
	}
	n := len(b.connections)
	b.connections[r.RemoteAddr] = n
	refuses := b.refused
	if n%apiServers == apiServers-1 && b.late < lateAnswers {
		b.late++
		refuses = !refuses
	}
	w.Header().Set("Content-Type", "application/json")
	var answer any = &ipamv1alpha1.Network{TypeMeta: metav1.TypeMeta{APIVersion: ipamv1alpha1.GroupVersion.String(), Kind: "Network"}}
	if refuses {
		s := apierrors.NewForbidden(schema.GroupResource{Resource: "networks"}, "n", errors.New("ValidatingAdmissionPolicy '"+policyName+"' denied it")).Status()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(http.StatusForbidden)
		answer = &s
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		b.t.Error(err)
	}
}

// TestPolicyInForce: it is by all API servers that a policy has to be in force, or lifted.
func TestPolicyInForce(t *testing.T) {
	for _, refused := range []bool{true, false} {
		b := &balanced{t: t, refused: refused, connections: map[string]int{}}
		server := httptest.NewUnstartedServer(b)
		server.EnableHTTP2 = true
		server.StartTLS()
		defer server.Close()
		config := &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}}
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(ipamv1alpha1.GroupVersion.WithKind("Network"), meta.RESTScopeNamespace)
		cluster := &access.Cluster{Config: config, Options: access.Options{LiqoNamespace: "liqo"}}
		var err error
		if cluster.Client, err = client.NewWithWatch(config, client.Options{Scheme: kinds.Scheme(), Mapper: mapper}); err != nil {
			t.Fatal(err)
		}
		if err := policyInForce(t.Context(), cluster, "liqo-controller-manager", refused, func(progress.Event) {}); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		if asked := len(b.connections); b.late < lateAnswers || asked < 4*askedAtOnce {
			t.Errorf("refused %v: the late API server has answered %d times, of %d questions", refused, b.late, asked)
		}
		b.mu.Unlock()
	}
}

// TestAllAnswer: an answer that tells nothing of the policy is neither.
func TestAllAnswer(t *testing.T) {
	denied, other := errors.New("denied by "+policyName), errors.New("no route")
	for _, tt := range []struct {
		answers []error
		refused bool
		all     bool
		err     error
	}{
		{[]error{denied, denied}, true, true, nil}, {[]error{denied, nil}, true, false, nil}, {[]error{denied, other}, true, false, other},
		{[]error{nil, nil}, false, true, nil}, {[]error{nil, denied}, false, false, nil}, {[]error{nil, other}, false, false, other},
	} {
		if all, err := allAnswer(tt.answers, tt.refused); all != tt.all || err != tt.err {
			t.Errorf("%+v: %v, %v", tt, all, err)
		}
	}
}
