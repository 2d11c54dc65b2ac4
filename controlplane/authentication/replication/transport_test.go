package replication

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/sluice-net/sluice/api/authentication/v1beta1"
	"github.com/sluice-net/sluice/controlplane/kinds"
)

// provider is an API server of another party that answers what it likes.
func provider(t *testing.T, answer http.HandlerFunc) client.WithWatch {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	local := fake.NewClientBuilder().WithScheme(kinds.Scheme()).Build()
	c, err := remoteClient(local, &rest.Config{Host: s.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, copied)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRedirectionIsNotFollowed(t *testing.T) {
	var stolen string
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header.Get("Authorization") }))
	t.Cleanup(elsewhere.Close)
	c := provider(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	err := c.List(t.Context(), listOf(copied[0]), client.InNamespace("x"))
	if err == nil || !strings.Contains(err.Error(), "redirection") || stolen != "" {
		t.Errorf("%v; the other server got %q", err, stolen)
	}
}

// TestWarnings: the warnings of a server are not logged, and so none is kept to be logged once.
func TestWarnings(t *testing.T) {
	c := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", `299 - "\x1b[2J"`)
		page(w, 0, 0, 0, "")
	})
	var logged []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	if err := c.List(ctx, listOf(copied[0]), client.InNamespace("x")); err != nil || len(logged) > 0 {
		t.Errorf("%v; logged %q", err, logged)
	}
}

func TestEndlessAnswer(t *testing.T) {
	c := provider(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	err := c.List(t.Context(), listOf(copied[0]), client.InNamespace("x"))
	if !errors.Is(err, errAnswerTooLong) {
		t.Errorf("%v, want %v", err, errAnswerTooLong)
	}
}

// TestEndlessPages: a server that always has another page is asked only so often.
func TestEndlessPages(t *testing.T) {
	asked := 0
	c := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": authv1beta1.GroupVersion.String(), "kind": "ResourceSliceList",
			"metadata": map[string]any{"continue": "more"}, "items": []any{},
		})
	})
	s := &session{peer: between, remote: c}
	if _, err := s.listThere(t.Context(), copied[0]); err == nil || asked != maxCopies/pageSize {
		t.Errorf("%v after %d pages", err, asked)
	}
}

func TestBoundedBody(t *testing.T) {
	b := &boundedBody{ReadCloser: io.NopCloser(strings.NewReader("12345")), left: 3}
	got, err := io.ReadAll(b)
	if string(got) != "123" || !errors.Is(err, errAnswerTooLong) {
		t.Errorf("%q, %v", got, err)
	}
}
