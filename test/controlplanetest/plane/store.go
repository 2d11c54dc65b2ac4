package plane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// store is an etcd. It is spoken to in JSON, which spares its client.
// (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway)
type store struct{ url string }

// state is what an etcd holds of Kubernetes, by key.
type state map[string][]byte

const registry = "/registry/"

// own are the prefixes of what the API server keeps for itself, and renews.
var own = []string{
	registry + "masterleases/", registry + "peerserverleases/", registry + "leases/kube-system/apiserver-",
	registry + "configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking",
}

func isOwn(key string) bool {
	for _, prefix := range own {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// addAccounts adds the default service accounts of s's own namespaces, as other has
// them.
func (s state) addAccounts(other state) {
	const accounts = registry + "serviceaccounts/"
	for key, value := range other {
		if namespace, found := strings.CutSuffix(strings.TrimPrefix(key, accounts), "/default"); found && s[registry+"namespaces/"+namespace] != nil {
			s[key] = value
		}
	}
}

type (
	rangeRequest struct {
		Key      []byte `json:"key"`
		RangeEnd []byte `json:"range_end,omitempty"`
	}
	putRequest struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	operation struct {
		Put    *putRequest   `json:"request_put,omitempty"`
		Delete *rangeRequest `json:"request_delete_range,omitempty"`
	}
)

// read returns all that is there, but not what is the API server's own, and no Events.
func (s store) read(ctx context.Context) (state, error) {
	var reply struct {
		KVs []putRequest `json:"kvs"`
	}
	end := registry[:len(registry)-1] + string(rune(registry[len(registry)-1]+1))
	if err := s.call(ctx, "range", rangeRequest{[]byte(registry), []byte(end)}, &reply); err != nil {
		return nil, err
	}
	found := make(state)
	for _, kv := range reply.KVs {
		if key := string(kv.Key); !isOwn(key) && !strings.HasPrefix(key, registry+"events/") {
			found[key] = kv.Value
		}
	}
	return found, nil
}

// restore makes what is there equal to want in one transaction, and returns which keys
// that concerned.
func (s store) restore(ctx context.Context, want state) (changed []string, err error) {
	have, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	var ops []operation
	for key := range have {
		if want[key] == nil {
			ops = append(ops, operation{Delete: &rangeRequest{Key: []byte(key)}})
			changed = append(changed, key)
		}
	}
	for key, value := range want {
		if !bytes.Equal(have[key], value) {
			ops = append(ops, operation{Put: &putRequest{[]byte(key), value}})
			changed = append(changed, key)
		}
	}
	if len(ops) == 0 {
		return nil, nil
	}
	events := operation{Delete: &rangeRequest{[]byte(registry + "events/"), []byte(registry + "events0")}}
	return changed, s.call(ctx, "txn", map[string]any{"success": append(ops, events)}, nil)
}

// call sends a request and reads the reply into it, if it is not nil.
func (s store) call(ctx context.Context, method string, request, reply any) error {
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/"+method, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // the status says enough
		return fmt.Errorf("etcd: %s: %s: %s", method, resp.Status, text)
	}
	if reply == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(reply)
}
