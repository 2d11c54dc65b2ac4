// Package template renders gateway templates: objects whose strings are Go
// templates over a gateway. It is pure.
//
//	port: "{{ .Spec.Endpoint.Port }}"           port: 51840
//	?nodePort: "{{ .Spec.Endpoint.NodePort }}"  (left out: 0)
//	args: ["--mtu={{ .Spec.MTU }}"]             args: ["--mtu=1340"]
//
// # Variables
//
// .Spec is the gateway's spec, .Name and .Namespace are the gateway's,
// .GatewayUID its UID, .ClusterID the ID of the remote cluster and .SecretName
// the name of the Secret that the spec refers to, empty if it refers to none.
// Fields of .Spec are written as in Go, .Spec.Endpoint.NodePort, or as in YAML,
// .Spec.endpoint.nodePort. Fields that are not set have the zero value of their
// type; a name that does not exist is an error.
//
// # Types
//
// YAML cannot say that a template stands for a number, so results have to be
// turned into what the field wants.
//
// Where the type of the field is known, it decides: text stays text
// in a field of type string, whatever it looks like, and becomes a number or a
// boolean in a field of such a type, or an error. A field that the type does not
// have is an error.
//
// Elsewhere text that reads as an integer, in its usual form, becomes
// one, "51840" as well as "{{ .Spec.Endpoint.Port }}". It stays text below keys
// which hold strings only wherever Kubernetes has them: labels, annotations,
// matchLabels, nodeSelector, stringData, env, args and command. Nothing becomes a
// boolean: whether "true" is one cannot be told from the text.
//
// What is no string is left alone.
//
// # Optional fields
//
// A key that begins with "?" is emitted without it if its value is something,
// and left out if it renders to "", 0, false, null, or to a map or list that is
// empty, perhaps because everything in it was left out. Keys are no templates.
//
// # Bounds
//
// Templates come from whoever may write them. They reach nothing but their
// variables and the functions of text/template; define, block and template are
// refused. Lengths, depth, the rounds of loops and the time are bounded, so that
// no template can keep a controller busy or fill its memory.
package template
