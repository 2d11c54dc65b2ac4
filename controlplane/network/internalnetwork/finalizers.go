package internalnetwork

import (
	ctrl "sigs.k8s.io/controller-runtime"

	networkingv1beta1 "github.com/sluice-net/sluice/api/networking/v1beta1"
	"github.com/sluice-net/sluice/controlplane/finalizers"
)

// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations;routeconfigurations,verbs=get;list;watch;patch

// setupFinalizers lets go of what Liqo's node agents were to remove.
func setupFinalizers(mgr ctrl.Manager, _ Options, _ *addressBook) error {
	return finalizers.SetupWithManager(mgr,
		finalizers.Of{Kind: new(networkingv1beta1.FirewallConfiguration), Finalizers: []string{networkingv1beta1.FinalizerFirewallConfiguration}},
		finalizers.Of{Kind: new(networkingv1beta1.RouteConfiguration), Finalizers: []string{networkingv1beta1.FinalizerRouteConfiguration}},
	)
}
