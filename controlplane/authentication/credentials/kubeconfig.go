package credentials

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-net/sluice/api/text"
)

// kubeconfigContext is the name of the one context of a kubeconfig that WriteKubeconfig makes.
const kubeconfigContext = "default-context"

// maxKubeconfig bounds what is parsed, in bytes.
const maxKubeconfig = 256 << 10

// Access is how a cluster is reached with a client certificate.
type Access struct {
	// Cluster and User name the entries of the kubeconfig.
	Cluster, User string
	// Server is the URL of the API server, CA its certificate authority in PEM; without one the system's are trusted.
	Server string
	CA     []byte
	// Proxy is the URL of an HTTP proxy; empty: none.
	Proxy string
	// Certificate is the client certificate, PEM, of Key.
	Certificate []byte
	Key         Key
	// Namespace is the default namespace; empty: none.
	Namespace string
}

// WriteKubeconfig makes a kubeconfig of a and judges it as ReadKubeconfig does: an API server that another cluster told
// must not make a file that nobody can use.
func WriteKubeconfig(a Access) ([]byte, error) {
	private, err := a.Key.MarshalPrivate()
	if err != nil {
		return nil, err
	}
	k := clientcmdapi.NewConfig()
	k.Clusters[a.Cluster] = &clientcmdapi.Cluster{Server: a.Server, CertificateAuthorityData: a.CA, ProxyURL: a.Proxy}
	k.AuthInfos[a.User] = &clientcmdapi.AuthInfo{ClientCertificateData: a.Certificate, ClientKeyData: private}
	k.Contexts[kubeconfigContext] = &clientcmdapi.Context{Cluster: a.Cluster, AuthInfo: a.User, Namespace: a.Namespace}
	k.CurrentContext = kubeconfigContext
	text, err := clientcmd.Write(*k)
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	if _, err := ReadKubeconfig(text); err != nil {
		return nil, err
	}
	return text, nil
}

// ReadKubeconfig returns how to reach the cluster of a kubeconfig that somebody put into a Secret. It refuses one that
// would have us run a program, read a file, or send credentials without TLS.
func ReadKubeconfig(text []byte) (*rest.Config, error) {
	if len(text) == 0 {
		return nil, errors.New("it is empty")
	}
	if len(text) > maxKubeconfig {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", len(text), maxKubeconfig)
	}
	k, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("it does not parse: %w", err)
	}
	context := k.Contexts[k.CurrentContext]
	if context == nil {
		return nil, fmt.Errorf("its current-context %q is not there", k.CurrentContext)
	}
	cluster, user := k.Clusters[context.Cluster], k.AuthInfos[context.AuthInfo]
	switch {
	case cluster == nil:
		return nil, fmt.Errorf("its cluster %q is not there", context.Cluster)
	case user == nil:
		return nil, fmt.Errorf("its user %q is not there", context.AuthInfo)
	}
	if err := judgeCluster(cluster); err != nil {
		return nil, err
	}
	if err := judgeUser(user); err != nil {
		return nil, err
	}
	c := &rest.Config{
		Host: cluster.Server, BearerToken: user.Token, Username: user.Username, Password: user.Password,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: cluster.CertificateAuthorityData, ServerName: cluster.TLSServerName,
			CertData: user.ClientCertificateData, KeyData: user.ClientKeyData,
		},
	}
	if cluster.ProxyURL != "" {
		proxy, err := url.Parse(cluster.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("its proxy-url: %w", err)
		}
		c.Proxy = http.ProxyURL(proxy)
	}
	return c, nil
}

func judgeCluster(c *clientcmdapi.Cluster) error {
	if c.CertificateAuthority != "" {
		return errors.New("it names a file (certificate-authority): write its content into certificate-authority-data")
	}
	if c.InsecureSkipTLSVerify {
		return errors.New("it says insecure-skip-tls-verify: write the certificate authority into certificate-authority-data instead")
	}
	u, err := url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("its server %q is no https URL", text.Quoted(c.Server))
	}
	if c.ProxyURL == "" {
		return nil
	}
	if p, err := url.Parse(c.ProxyURL); err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" && p.Scheme != "socks5" {
		return fmt.Errorf("its proxy-url %q is no http, https or socks5 URL", text.Quoted(c.ProxyURL))
	}
	return nil
}

func judgeUser(u *clientcmdapi.AuthInfo) error {
	for _, file := range []struct{ field, value string }{
		{"client-certificate", u.ClientCertificate}, {"client-key", u.ClientKey}, {"tokenFile", u.TokenFile},
	} {
		if file.value != "" {
			return fmt.Errorf("it names a file (%s): write its content into the kubeconfig instead", file.field)
		}
	}
	switch {
	case u.Exec != nil:
		return errors.New("it would run a program (exec), which is never done: use a client certificate or a token")
	case u.AuthProvider != nil:
		return errors.New("it names an auth-provider, which is never run: use a client certificate or a token")
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0:
		return errors.New("it impersonates another user, which is not supported")
	case len(u.ClientCertificateData) == 0 && u.Token == "" && u.Username == "":
		return errors.New("it has no credentials: neither a client certificate nor a token")
	case (len(u.ClientCertificateData) == 0) != (len(u.ClientKeyData) == 0):
		return errors.New("it has only one of client-certificate-data and client-key-data")
	}
	return nil
}
