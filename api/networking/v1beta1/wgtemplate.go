package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceTemplate is a Service without its name: labels, annotations and spec.
type ServiceTemplate struct {
	// Metadata is merged into that of the Service.
	Metadata metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is that of the Service.
	Spec corev1.ServiceSpec `json:"spec,omitzero"`
}

// DeploymentTemplate is a Deployment without its name: labels, annotations and spec.
type DeploymentTemplate struct {
	// Metadata is merged into that of the Deployment.
	Metadata metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is that of the Deployment.
	Spec appsv1.DeploymentSpec `json:"spec,omitzero"`
}

// ServiceMonitorTemplate is a ServiceMonitor of the Prometheus operator without its name.
type ServiceMonitorTemplate struct {
	// Metadata is merged into that of the ServiceMonitor.
	Metadata metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is handed to the Prometheus operator as it is. Its schema is that operator's business: copying it here
	// would tie this API to one version of it.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec,omitzero"`
}

// Metrics says whether and how the gateway's metrics are scraped.
type Metrics struct {
	// Enabled turns the metrics Service and ServiceMonitor on.
	Enabled bool `json:"enabled"`
	// Service exposes the metrics port.
	Service *ServiceTemplate `json:"service,omitempty"`
	// ServiceMonitor makes the Prometheus operator scrape it.
	ServiceMonitor *ServiceMonitorTemplate `json:"serviceMonitor,omitempty"`
}
