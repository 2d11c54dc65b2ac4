package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WgGatewayClientTemplate is what a WireGuard gateway client is rendered from. The label of its CRD is how a controller
// finds all kinds of templates, including those of other technologies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo,shortName=wggct;wgct
// +kubebuilder:metadata:labels="networking.liqo.io/gatewaytemplate=true"
type WgGatewayClientTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec WgGatewayClientTemplateSpec `json:"spec,omitzero"`
}

// WgGatewayClientTemplateSpec holds the template.
type WgGatewayClientTemplateSpec struct {
	// ObjectKind is the kind that is made from the template.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) && size(self.apiVersion) > 0 && has(self.kind) && size(self.kind) > 0",message="objectKind needs apiVersion and kind of the objects that are made from the template, such as networking.liqo.io/v1beta1 and WgGatewayClient"
	ObjectKind metav1.TypeMeta `json:"objectKind,omitzero"`
	// Template is the metadata and the spec of the object to make. Every string in it is a Go template over the
	// GatewayClient; a key that begins with ? is left out when its value renders empty.
	//
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Template runtime.RawExtension `json:"template,omitzero"`
}

// WgGatewayClientTemplateList is a list of WgGatewayClientTemplates.
//
// +kubebuilder:object:root=true
type WgGatewayClientTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WgGatewayClientTemplate `json:"items"`
}
