package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WgGatewayServerTemplate is what a WireGuard gateway server is rendered from. The label of its CRD is how a controller
// finds all kinds of templates, including those of other technologies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo,shortName=wggst;wgst
// +kubebuilder:metadata:labels="networking.liqo.io/gatewaytemplate=true"
type WgGatewayServerTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec WgGatewayServerTemplateSpec `json:"spec,omitzero"`
}

// WgGatewayServerTemplateSpec holds the template.
type WgGatewayServerTemplateSpec struct {
	// ObjectKind is the kind that is made from the template.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) && size(self.apiVersion) > 0 && has(self.kind) && size(self.kind) > 0",message="objectKind needs apiVersion and kind of the objects that are made from the template, such as networking.liqo.io/v1beta1 and WgGatewayServer"
	ObjectKind metav1.TypeMeta `json:"objectKind,omitzero"`
	// Template is the metadata and the spec of the object to make. Every string in it is a Go template over the
	// GatewayServer; a key that begins with ? is left out when its value renders empty.
	//
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Template runtime.RawExtension `json:"template,omitzero"`
}

// WgGatewayServerTemplateList is a list of WgGatewayServerTemplates.
//
// +kubebuilder:object:root=true
type WgGatewayServerTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WgGatewayServerTemplate `json:"items"`
}
