package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PublicKey holds the public key of the remote cluster's gateway. The labels liqo.io/remote-cluster-id and
// networking.liqo.io/gateway-resource say whose it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=publickeies,singular=publickey,categories=liqo,shortName=pk;pkies;pkey
type PublicKey struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PublicKeySpec `json:"spec,omitzero"`
}

// PublicKeySpec holds the key.
type PublicKeySpec struct {
	// PublicKey is the 32 bytes of a Curve25519 public key, in base64 (what `wg pubkey` prints).
	//
	// It has no format byte: API servers read such a field as URL-safe base64 before they judge it by a rule.
	//
	// +required
	// +kubebuilder:validation:Format=""
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9+/]{43}=$')",message="publicKey must be a WireGuard public key: 32 bytes in base64, 44 characters, as wg pubkey prints it"
	PublicKey []byte `json:"publicKey,omitempty"`
}

// PublicKeyList is a list of PublicKeys.
//
// +kubebuilder:object:root=true
type PublicKeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PublicKey `json:"items"`
}
